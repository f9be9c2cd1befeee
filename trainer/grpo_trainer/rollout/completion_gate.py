"""Completions and new weights take turns in an engine that runs many completions at once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager

from .stopwatch import Stopwatch


class CompletionGate:
    """Counts completions under way, and measures the time in which any of them makes progress.

    With `in_flight_updates` weights change under completions; else they wait for the end of those
    under way, and new completions wait for the weights.
    """

    def __init__(self, *, in_flight_updates: bool, max_completions: int) -> None:
        self._in_flight_updates = in_flight_updates
        self._max_completions = max_completions
        self.has_weights = False
        """Whether completions may start; a change takes effect at the end of `drained`."""
        self._changed = asyncio.Condition()
        self._completions = 0
        self._draining = False
        self._paused = False
        self._busy = Stopwatch()
        self._timed = ExitStack()

    @property
    def busy_seconds(self) -> float:
        """Seconds in which completions were under way and not paused."""
        return self._busy.seconds

    @asynccontextmanager
    async def running(self, completions: int) -> AsyncIterator[None]:
        """Wait until so many completions may be started, and count them for the block."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._admits(completions))
            self._count(completions)
        try:
            yield
        finally:
            async with self._changed:
                self._count(-completions)
                self._changed.notify_all()

    @asynccontextmanager
    async def drained(self) -> AsyncIterator[None]:
        """A block in which no completion is under way, unless weights may change in flight."""
        async with self._changed:
            self._draining = not self._in_flight_updates
            await self._changed.wait_for(lambda: not self._draining or self._completions == 0)
        try:
            yield
        finally:
            async with self._changed:
                self._draining = False
                self._changed.notify_all()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A block in which no completion makes progress."""
        self._paused = True
        self._time()
        try:
            yield
        finally:
            self._paused = False
            self._time()

    def _admits(self, completions: int) -> bool:
        if not self.has_weights or self._draining:
            return False
        if self._in_flight_updates or self._completions == 0:
            return True
        # What the engine would only queue would delay the next weights.
        return self._completions + completions <= self._max_completions

    def _count(self, completions: int) -> None:
        self._completions += completions
        self._time()

    def _time(self) -> None:
        self._timed.close()
        if self._completions and not self._paused:
            self._timed.enter_context(self._busy)
