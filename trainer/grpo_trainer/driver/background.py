"""Work that overlaps the training loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTask:
    """At most one task of a kind; its failure is raised where it is joined."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The task that was started last."""
        return self._task

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._task is not None and not self._task.done()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start the next task; join the previous one first."""
        assert not self.running, "one task at a time"
        self._task = asyncio.create_task(work)

    async def join(self) -> None:
        """Wait for the task; raises what it raised."""
        if self._task is not None:
            await self._task

    def check(self) -> None:
        """Raise what a finished task raised."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def cancel(self) -> None:
        """Cancel the task and wait until it has ended; its failure is discarded."""
        task, self._task = self._task, None
        if task is not None:
            await cancel(task)


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended; its failure is discarded.

    For the way out of a block: the failure was raised elsewhere before, or no longer matters.
    """
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
