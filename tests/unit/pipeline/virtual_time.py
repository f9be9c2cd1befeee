"""An event loop whose clock jumps to the next timer, and that fails on a deadlock."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class DeadlockError(AssertionError):
    """Every task waits for another one, or the run does not end."""


class _JumpingSelector(selectors.SelectSelector):
    """Waits by moving the clock."""

    def __init__(self, max_iterations: int) -> None:
        super().__init__()
        self.now = 0.0
        self._iterations_left = max_iterations

    def select(self, timeout: float | None = None) -> Any:
        self._iterations_left -= 1
        if timeout is None:
            raise DeadlockError("no task can continue, and no timer is set")
        if self._iterations_left < 0:
            raise DeadlockError("the run does not end")
        self.now += timeout
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Deterministic: tasks run in the order in which they became ready, timers by their time."""

    def __init__(self, max_iterations: int = 100_000) -> None:
        self._virtual = _JumpingSelector(max_iterations)
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a clock of its own; raises `DeadlockError` where that end cannot come."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)


async def settled(task: "asyncio.Task[T]") -> bool:
    """Run everything that can continue, then return whether the task is done."""
    for _ in range(10):
        await asyncio.sleep(0)
    return task.done()
