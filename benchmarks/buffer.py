"""CPU time of the rollout buffer, compared with an `asyncio.Queue` of the same groups.

    .venv/bin/python -m benchmarks.buffer [--groups N] [--repeats N]

Groups are stand-ins that cost nothing to make, so all the time is that of leases, deadlines,
admission, staleness and the ledger of prompts.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from grpo_trainer.pipeline import Limits, PromptSource, RolloutBuffer

from .table import Spread, load, machine, table

MAX_STALENESS = 2
LEASED_AT_ONCE = 8
DEADLINE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Group:
    """The part of a scored group that the buffer reads."""

    version: int


@dataclass(frozen=True, slots=True)
class Case:
    """The clients of the buffer and their batch sizes."""

    producers: int
    groups_per_step: int


CASES = (Case(1, 32), Case(8, 32), Case(8, 512), Case(64, 512))


async def through_buffer(case: Case, groups: int) -> None:
    """Lease, complete, take and commit all groups; every step creates a version."""
    buffer: RolloutBuffer[Group] = RolloutBuffer(
        PromptSource(groups, episodes=1, seed=0),
        Limits(
            groups_per_step=case.groups_per_step,
            capacity=2 * case.groups_per_step,
            max_staleness=MAX_STALENESS,
            max_steps=None,
        ),
        max_attempts=1,
        lease_seconds=DEADLINE_SECONDS,
    )
    version = 0

    async def produce(name: str) -> None:
        buffer.loaded(name, version)
        while leases := await buffer.lease(name, LEASED_AT_ONCE):
            for lease in leases:
                buffer.complete(lease, Group(version), keep=True)
            await asyncio.sleep(0)  # as after every completion of a real producer, other tasks run

    async with asyncio.TaskGroup() as tasks:
        names = [f"producer-{index}" for index in range(case.producers)]
        for name in names:
            tasks.create_task(produce(name))
        while (batch := await buffer.take()) is not None:
            buffer.commit(batch)
            version = batch.step + 1
            for name in names:
                buffer.loaded(name, version)


async def through_queue(case: Case, groups: int) -> None:
    """The same transfer without prompts, versions and deadlines."""
    queue: asyncio.Queue[Group] = asyncio.Queue(2 * case.groups_per_step)
    serials = iter(range(groups))

    async def produce() -> None:
        for number, _ in enumerate(serials, 1):
            await queue.put(Group(0))
            if number % LEASED_AT_ONCE == 0:
                await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(case.producers):
            tasks.create_task(produce())
        for _ in range(groups):
            await queue.get()


def microseconds(work: Callable[[Case, int], Awaitable[None]], case: Case, groups: int) -> float:
    """CPU time per group: one thread does everything, and other processes do not affect it."""

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await work(case, groups)

    began = time.process_time()
    asyncio.run(bounded())
    return 1e6 * (time.process_time() - began) / groups


def row(case: Case, groups: int, repeats: int) -> list[str]:
    ours, queue = [], []
    for _ in range(repeats):
        ours.append(microseconds(through_buffer, case, groups))
        queue.append(microseconds(through_queue, case, groups))
    ratios = [a / b for a, b in zip(ours, queue, strict=True)]
    cells = (f"{Spread.of(ours):.1f}", f"{Spread.of(queue):.1f}", f"{Spread.of(ratios):.1f}")
    return [f"{case.producers} producers, {case.groups_per_step} groups a step", *cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--groups", type=int, default=20480, help="groups of one repeat (20480)")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    print(machine())
    rows = [row(case, arguments.groups, arguments.repeats) for case in CASES]
    print(f"{arguments.repeats} x {arguments.groups} groups; at the end {load()}\n")
    print(table(["", "buffer us/group", "queue us/group", "ratio"], rows))


if __name__ == "__main__":
    main()
