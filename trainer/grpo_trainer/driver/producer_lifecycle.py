"""One producer by name: create, serve, restart after failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ray.exceptions import RayError, RayTaskError

from grpo_trainer.errors import InvalidInputError, RunFailedError

from .producer_client import ProducerClient, ProducerSettings
from .producer_session import ProducerSession, ProducerWork
from .ray_calls import describe

_log = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 1.0
LAST_BACKOFF_SECONDS = 60.0
MAX_START_FAILURES = 5
"""Consecutive failures to start, after which the run fails."""


@dataclass(frozen=True, slots=True)
class LifecycleEvents:
    """What the pool does when the state of a producer changes."""

    ready: Callable[[ProducerSession], None]
    gone: Callable[[ProducerSession], None]
    """It stopped or was lost; called at least once for each session."""
    stopping: Callable[[ProducerSession, str, int], None]
    """It was asked to stop, with the reason and the number of prompts given back."""
    restarting: Callable[[], None]
    may_restart: Callable[[], Awaitable[bool]]
    """Whether there is still a place for one more producer."""


class ProducerLifecycle:
    """Runs incarnations of a producer, one after the other."""

    def __init__(
        self,
        name: str,
        settings: ProducerSettings,
        work: ProducerWork,
        events: LifecycleEvents,
    ) -> None:
        self._name = name
        self._settings = settings
        self._work = work
        self._events = events

    async def run(self) -> None:
        """Keep the producer running; returns when there is no place left for it.

        Raises:
            InvalidInputError: the engine refuses the model, weights or settings.
            RunFailedError: it failed to start MAX_START_FAILURES times in a row, or no producer
                returns a rollout.
        """
        failures = 0
        while True:
            client = ProducerClient(self._name, self._settings)
            session = ProducerSession(client, self._settings, self._work)
            started = lost = False
            try:
                await session.ready()
                started = True
                await self._serve(session)
            except* (RayError, TimeoutError) as group:
                lost = True
                failures = 0 if started else failures + 1
                self._check(_first(group), failures, session)
            finally:
                self._release(session)
            # By the end of the back-off a draining node is known and receives nothing.
            await asyncio.sleep(min(FIRST_BACKOFF_SECONDS * 2**failures, LAST_BACKOFF_SECONDS))
            if not await self._events.may_restart():
                return
            if lost:
                self._events.restarting()

    async def _serve(self, session: ProducerSession) -> None:
        self._events.ready(session)

        def stop(reason: str, prompts: int) -> None:
            self._events.stopping(session, reason, prompts)
            self._events.gone(session)

        await session.serve(stop)

    def _check(self, error: BaseException, failures: int, session: ProducerSession) -> None:
        """Raise the error of the run, if this loss ends it."""
        if isinstance(error, RayTaskError) and isinstance(error.cause, ValueError):
            raise InvalidInputError(f"{self._name}: {error.cause}") from error
        _log.warning("%s was lost: %s", self._name, describe(error))
        if failures >= MAX_START_FAILURES:
            raise RunFailedError(
                f"{self._name} failed to start {failures} times: {describe(error)}"
            ) from error
        if session.at_work:
            raised = isinstance(error, RayTaskError)
            self._work.health.producer_lost(self._name, describe(error), raised=raised)

    def _release(self, session: ProducerSession) -> None:
        """End the actor and return what it held."""
        session.client.kill()
        self._events.gone(session)
        self._work.buffer.release(self._name)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of nested groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
