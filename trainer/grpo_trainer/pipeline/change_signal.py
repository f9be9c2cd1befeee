"""Waiting for a change of shared state within one event loop."""

import asyncio
from collections.abc import Callable


class ChangeSignal:
    """Wakes every waiter after each change; a waiter then checks its own condition again."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake all waiters."""
        self._event.set()
        self._event.clear()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._event.wait()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; returns at once when it already does."""
        while not condition():
            await self._event.wait()
