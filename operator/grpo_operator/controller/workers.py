"""Looking at many jobs: each by one coroutine at a time, woken by events and timers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from ..clients.kube import ApiError
from ..metrics import Metrics
from ..policies.retry import backoff
from .cache import Key

log = logging.getLogger(__name__)

current_job: ContextVar[str] = ContextVar("current_job", default="")
"""Namespace and name of the job that is looked at, for the log."""

Look = Callable[[Key, float], Awaitable[float | None]]


class Workers:
    """Calls `look(key, woken)` for keys that were woken, all at once, a key never twice.

    A look may wait for a head that does not answer, so their number is not limited: that of the
    calls to the API server is.
    """

    def __init__(self, look: Look, metrics: Metrics) -> None:
        self._look, self._metrics = look, metrics
        self._woken: dict[Key, float] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._closed = False

    async def run(self) -> None:
        """Look until cancelled; nothing is under way any more when this has ended."""
        try:
            await asyncio.Event().wait()
        finally:
            await self._close()

    def wake(self, key: Key) -> None:
        """Have a job looked at, as soon as may be."""
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
        """Look until nothing more has happened, then set the timer."""
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
        """One look; whatever goes wrong with one job is its own affair, and tried again."""
        with self._metrics.reconcile_seconds.time():
            try:
                delay = await self._look(key, woken)
            except ApiError as error:
                log.warning("the API server refused: %s", error)
                return self._failed(key, error.reason or type(error).__name__)
            except Exception as error:
                log.exception("unexpected")
                return self._failed(key, type(error).__name__)
        self._failures.pop(key, None)
        return delay

    def _failed(self, key: Key, reason: str) -> float:
        self._metrics.reconcile_errors.labels(reason).inc()
        self._failures[key] = self._failures.get(key, 0) + 1
        return backoff("/".join(key), self._failures[key])
