"""Autoscaled numbers of producers compared with fixed ones, in virtual time.

    PYTHONPATH=tests .venv/bin/python -m benchmarks.autoscale [--steps N]

Rollout buffer and autoscaler are the real ones; producers and trainer are traces: the duration of
the completions of a prompt, and of a step.
"""

import argparse
import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from grpo_trainer.driver.autoscale import Autoscaler, Range, Sample
from grpo_trainer.pipeline import Limits, PromptSource, RolloutBuffer
from unit.pipeline.buffers import Group
from unit.pipeline.virtual_time import VirtualTimeLoop

from .table import table

GROUPS = 32
MICROBATCH = 8
TRAIN_SECONDS = 60.0
COMING_SECONDS = 180.0
"""From the request for a producer to its first completion: a node, a pod, an engine."""
BOUNDS = Range(1, 8)
FIXED = (1, 2, 4, 8)

Duration = Callable[[int, random.Random], float]
"""Step and chance -> seconds for one micro-batch of prompts."""


def _steady(seconds: float, spread: float) -> Duration:
    return lambda step, chance: seconds * chance.lognormvariate(-(spread**2) / 2, spread)


def _growing(first: float, last: float, steps: int) -> Duration:
    return lambda step, chance: (
        (first + (last - first) * min(1, step / steps)) * chance.uniform(0.8, 1.2)
    )


def _waves(low: float, high: float, length: int) -> Duration:
    return lambda step, chance: (high if step // length % 2 else low) * chance.uniform(0.8, 1.2)


def traces(steps: int) -> dict[str, Duration]:
    """Seconds for a micro-batch; a step takes four of them, and 60 s of training."""
    return {
        "fast producers": _steady(9.0, 0.2),
        "slow producers": _steady(66.0, 0.2),
        "long tail": _steady(40.0, 1.2),
        "growing completions": _growing(8.0, 100.0, steps),
        "load in waves": _waves(20.0, 80.0, steps // 4),
    }


@dataclass(slots=True)
class Outcome:
    """A simulated run."""

    wall: float = 0.0
    waited: float = 0.0
    producer_seconds: float = 0.0
    """Of producers that are ready or starting."""
    busy: float = 0.0
    numbers: tuple[int, ...] = ()
    """Requested producers, after each step."""


class Run:
    """One run of a trace, with a fixed number of producers or an autoscaler."""

    def __init__(self, duration: Duration, steps: int, producers: int, scaled: bool) -> None:
        self._duration = duration
        self._steps = steps
        self._chance = random.Random(0)
        self._scaler = Autoscaler(BOUNDS) if scaled else None
        self._buffer: RolloutBuffer[Group] = RolloutBuffer(
            PromptSource(GROUPS * steps, 1, seed=0),
            Limits(groups_per_step=GROUPS, capacity=GROUPS, max_staleness=2, max_steps=steps),
            max_attempts=1,
            lease_seconds=1e9,
        )
        self._version = 0
        self._step = 0
        self._producers: dict[str, asyncio.Task[None]] = {}
        self._ready: set[str] = set()
        self._serial = 0
        self._wanted = producers
        self._outcome = Outcome()

    async def go(self) -> Outcome:
        """The whole run."""
        loop = asyncio.get_running_loop()
        self._follow(0.0)
        began, numbers = loop.time(), []
        take = asyncio.create_task(self._buffer.take())
        for step in range(self._steps):
            start, busy, self._step = loop.time(), self._outcome.busy, step
            batch = await take
            assert batch is not None
            waited = loop.time() - start
            # As in a run: the next batch is requested while this one is trained on.
            take = asyncio.create_task(self._buffer.take())
            await asyncio.sleep(TRAIN_SECONDS)
            self._buffer.commit(batch)
            self._version = batch.step + 1
            for name in self._ready:
                self._buffer.loaded(name, self._version)
            seconds = loop.time() - start
            self._outcome.waited += waited
            self._outcome.producer_seconds += seconds * len(self._producers)
            ahead = self._buffer.next_step - self._version + self._buffer.depth / GROUPS
            sample = Sample(seconds, waited, self._outcome.busy - busy, ahead)
            self._scale(sample)
            numbers.append(self._wanted)
        self._outcome.wall = loop.time() - began
        self._outcome.numbers = tuple(numbers)
        self._buffer.close()
        for task in self._producers.values():
            task.cancel()
        return self._outcome

    def _scale(self, sample: Sample) -> None:
        if self._scaler is None:
            return
        count = self._scaler.observe(sample, len(self._ready))
        if count is not None:
            self._wanted = count
        self._follow(COMING_SECONDS)

    def _follow(self, delay: float) -> None:
        while len(self._producers) < self._wanted:
            name = f"producer-{self._serial}"
            self._serial += 1
            self._producers[name] = asyncio.create_task(self._produce(name, delay))
        for name in list(self._producers)[self._wanted :]:
            self._producers.pop(name).cancel()

    async def _produce(self, name: str, delay: float) -> None:
        await asyncio.sleep(delay)
        self._ready.add(name)
        self._buffer.loaded(name, self._version)
        try:
            while leases := await self._buffer.lease(name, MICROBATCH):
                version = self._version
                seconds = self._duration(self._step, self._chance)
                await asyncio.sleep(seconds)
                self._outcome.busy += seconds
                for lease in leases:
                    self._buffer.complete(lease, Group(version), keep=True)
        finally:
            self._ready.discard(name)
            self._buffer.release(name)


def simulate(duration: Duration, steps: int, producers: int, *, scaled: bool) -> Outcome:
    """A run on a virtual clock."""
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(10_000_000)) as runner:
        return runner.run(Run(duration, steps, producers, scaled).go())


def rows(steps: int) -> list[list[str]]:
    """Each trace with every number of producers, and with the autoscaler."""
    found = []
    for trace, duration in traces(steps).items():
        outcomes = {str(n): simulate(duration, steps, n, scaled=False) for n in FIXED}
        outcomes["autoscale"] = simulate(duration, steps, 2, scaled=True)
        for name, outcome in outcomes.items():
            changes = sum(a != b for a, b in pairwise(outcome.numbers))
            found.append(
                [
                    trace if name == "1" else "",
                    name,
                    f"{outcome.wall / 3600:.1f}",
                    f"{outcome.waited / outcome.wall:.0%}",
                    f"{outcome.producer_seconds / outcome.wall:.1f}",
                    f"{outcome.busy / outcome.producer_seconds:.0%}",
                    f"{(outcome.wall + outcome.producer_seconds) / 3600:.0f}",
                    str(changes) if name == "autoscale" else "",
                ]
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    head = [
        "trace",
        "producers",
        "hours",
        "consumers\nidle",
        "mean\nproducers",
        "producers\nbusy",
        "accelerator\nhours",
        "changes",
    ]
    print(table(head, rows(parser.parse_args().steps)))


if __name__ == "__main__":
    main()
