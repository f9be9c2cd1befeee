"""Reconciling many jobs: each by one coroutine at a time, woken by events and timers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass

from ..clients.kube import ApiError
from ..metrics import Metrics
from ..policies.retry import backoff
from .cache import Key

log = logging.getLogger(__name__)

current_job: ContextVar[str] = ContextVar("current_job", default="")
"""Namespace and name of the job that is reconciled, for the log."""

Reconcile = Callable[[Key, float], Awaitable[float | None]]


@dataclass(frozen=True, slots=True)
class _Failures:
    """Failed reconciliations of a job since one that succeeded, or got further."""

    count: int
    reached: int
    """Objects of a creation that exist."""


class Workers:
    """Calls `reconcile(key, woken)` for keys that were woken, concurrently, but one key at a time.

    A reconciliation may wait for a head that does not respond, so their number is not limited; that
    of calls to the API server is.
    """

    def __init__(self, reconcile: Reconcile, metrics: Metrics) -> None:
        self._reconcile, self._metrics = reconcile, metrics
        self._woken: dict[Key, float] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, _Failures] = {}
        self._closed = False

    async def run(self) -> None:
        """Reconcile until cancelled; when this returns, nothing is in progress."""
        try:
            await asyncio.Event().wait()
        finally:
            await self._close()

    def wake(self, key: Key) -> None:
        """Reconcile a job as soon as possible."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._woken.setdefault(key, loop.time())
        if key not in self._tasks:
            name = "/".join(key)
            self._tasks[key] = loop.create_task(self._work(key), name=name)

    async def _close(self) -> None:
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, key: Key) -> None:
        """Reconcile until no event is left, then set the timer."""
        current_job.set("/".join(key))
        delay: float | None = None
        try:
            while key in self._woken:
                delay = await self._once(key, self._woken.pop(key))
        finally:
            del self._tasks[key]
        if delay is not None:
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(delay, self.wake, key)

    async def _once(self, key: Key, woken: float) -> float | None:
        """Reconcile once; an error of one job affects no other, and is retried."""
        with self._metrics.reconcile_seconds.time():
            try:
                delay = await self._reconcile(key, woken)
            except ApiError as error:
                log.warning("API server error: %s", error)
                return self._failed(key, error.reason or type(error).__name__, error.reached)
            except Exception as error:
                log.exception("Unexpected error")
                return self._failed(key, type(error).__name__)
        self._failures.pop(key, None)
        return delay

    def _failed(self, key: Key, reason: str, reached: int = 0) -> float:
        self._metrics.reconcile_errors.labels(reason).inc()
        before = self._failures.get(key, _Failures(0, 0))
        further = reached > before.reached
        count = 1 if further else before.count + 1
        self._failures[key] = _Failures(count, max(reached, before.reached))
        return backoff("/".join(key), count)
