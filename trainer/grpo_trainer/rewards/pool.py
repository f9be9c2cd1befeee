"""Applies a function in worker processes with a deadline per item; replaces hung or dead workers.

Workers are fresh interpreters, never forks: the parent may hold threads of Ray or torch.

`pebble.ProcessPool` was tried instead. A scored group costs the driver's event loop two to three
times the CPU time (a future and three threads per completion), the death of an idle worker breaks
the whole pool, workers import the parent's main module, and they survive a parent that is killed.
"""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from .channel import Channel
from .worker import Failure, FailureReason, encode

Context = TypeVar("Context")
Item = TypeVar("Item")
Result = TypeVar("Result")
T = TypeVar("T")

_START_SECONDS = 120.0  # imports, on a machine that is busy with the same
_EXIT_SECONDS = 10.0
_MAIN = f"from {__package__}.worker import main; main()"


class WorkerPool(Generic[Item, Context, Result]):
    """`factory()` returns, in each worker, the `function(items, context)` to call, which yields a
    result or failure for each item.

    The factory is pickled; `memory_bytes` limits a worker's address space. A pool belongs to one
    event loop.
    """

    def __init__(
        self,
        factory: Callable[[], Callable[[Sequence[Item], Context], Iterator[Result | Failure]]],
        *,
        workers: int,
        timeout_seconds: float,
        memory_bytes: int | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self._setup = encode((factory, memory_bytes))
        self._size = workers
        self._timeout = timeout_seconds
        self._slots = asyncio.Semaphore(workers)
        self._idle: list[_Worker] = []
        self._live: set[_Worker] = set()
        self._exiting: set[asyncio.Task[int]] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start all workers; raises the InvalidInputError of the factory, or RuntimeError."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._spawn()) for _ in range(self._size)]
        except BaseException as error:
            await self.close()
            if isinstance(error, BaseExceptionGroup):
                raise error.exceptions[0] from None
            raise
        self._idle = [task.result() for task in tasks]

    async def map(self, context: Context, items: Sequence[Item]) -> list[Result | Failure]:
        """One result or failure per item, in order; on one worker unless it has to be replaced."""
        results: list[Result | Failure] = []
        async with self._slots:
            while len(results) < len(items):
                worker = await self._acquire()
                try:
                    results += await self._run(worker, context, items[len(results) :])
                except BaseException:
                    self._discard(worker)
                    raise
                self._idle.append(worker)
        return results

    async def close(self) -> None:
        """Kill and reap every worker; calls of `map` that are still waiting raise RuntimeError."""
        self._closed = True
        self._idle = []
        for worker in list(self._live):
            self._discard(worker)
        async with asyncio.timeout(_EXIT_SECONDS):
            await asyncio.gather(*self._exiting)

    async def _run(
        self, worker: "_Worker", context: Context, items: Sequence[Item]
    ) -> list[Result | Failure]:
        """Results of all items, or up to the one that hangs or kills the worker."""
        results: list[Result | Failure] = []
        worker.send(encode((context, items)))
        while len(results) < len(items):
            try:
                async with asyncio.timeout(self._timeout):
                    await worker.channel.wait()
                results += worker.channel.received()
            except TimeoutError:
                results.append(Failure(FailureReason.TIMEOUT))
                worker.kill()
                break
            except ConnectionError:
                self._check_open()
                results.append(Failure(FailureReason.CRASH))
                worker.kill()
                break
        return results

    async def _acquire(self) -> "_Worker":
        self._check_open()
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            self._discard(worker)
        return await self._spawn()

    async def _spawn(self) -> "_Worker":
        worker = await _Worker.spawn()
        self._live.add(worker)
        try:
            self._check_open()
            worker.send(self._setup)
            async with asyncio.timeout(_START_SECONDS):
                await worker.channel.wait()
            (fault,) = worker.channel.received()
            if fault is not None:
                raise fault
        except (TimeoutError, ConnectionError) as error:
            self._discard(worker)
            raise RuntimeError(f"a scoring process did not start: {error!r}") from error
        except BaseException:
            self._discard(worker)
            raise
        return worker

    def _discard(self, worker: "_Worker") -> None:
        worker.kill()
        if worker in self._live:
            self._live.remove(worker)
            exiting = asyncio.create_task(worker.process.wait())
            self._exiting.add(exiting)
            exiting.add_done_callback(self._exiting.discard)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the pool of scoring processes is closed")


def run_blocking(coroutine: Coroutine[None, None, T]) -> T:
    """The result of a coroutine, also where the caller's thread runs an event loop."""
    with ThreadPoolExecutor(1, thread_name_prefix="reward-check") as executor:
        return executor.submit(asyncio.run, coroutine).result()


@dataclass(frozen=True, eq=False)
class _Worker:
    """A worker process and the channel to it."""

    process: asyncio.subprocess.Process
    channel: Channel

    @classmethod
    async def spawn(cls) -> "_Worker":
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", _MAIN, str(theirs.fileno()), str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        return cls(process, await Channel.open(ours))

    @property
    def alive(self) -> bool:
        """False after the process was killed or has exited, even before the event loop reaps it."""
        if self.channel.closed or self.process.returncode is not None:
            return False
        try:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.process.pid, options) is None
        except ChildProcessError:
            return False

    def send(self, message: bytes) -> None:
        self.channel.send(message)

    def kill(self) -> None:
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):  # it has already exited
            self.process.kill()
