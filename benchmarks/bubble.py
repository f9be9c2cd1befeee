"""Idle time of producers and consumers where the cores of this machine are not the limit.

    .venv/bin/python -m benchmarks.bubble [--steps N] [--repeats N] [--only NAME]

The driver, its buffer, scorer and weight publisher are real; producers and consumers wait as long
as a 7B model would compute, 20 times faster. The ideal schedule has the same groups and steps, no
bound on staleness, and weights that cost no time.
"""

import argparse
import asyncio
import heapq
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_trainer.events import StepReport

from .simulated import Durations, Simulated, simulate
from .table import Spread, load, machine, table

COMPLETIONS = 8
DEADLINE_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The actors of a run and the time that they need."""

    name: str
    producers: int
    consumers: int
    slots: int
    """Groups that a producer generates at a time."""
    durations: Durations
    waves: int = 1
    """Groups that a slot generates for a step, in the time of a step."""

    @property
    def groups_per_step(self) -> int:
        """As many as all producers generate in the time of a step."""
        return self.producers * self.slots * self.waves


def _durations(seconds: float, spread: float, waves: int = 1) -> Durations:
    return Durations(
        group=seconds,
        spread=spread,
        train=seconds * waves,
        publish=0.05 * seconds * waves,
        apply=0.02 * seconds * waves,
        completions=COMPLETIONS,
    )


PIPELINES = (
    Pipeline("balanced, 8 + 8", 8, 8, 8, _durations(2.0, 0.15)),
    Pipeline("balanced, 64 + 64", 64, 64, 2, _durations(4.0, 0.15)),
    Pipeline("short groups, 8 + 8", 8, 8, 8, _durations(0.5, 0.15, waves=4), waves=4),
    Pipeline("long tail, 8 + 8", 8, 8, 8, _durations(2.0, 1.0)),
    Pipeline("long tail, 64 + 64", 64, 64, 2, _durations(4.0, 1.0)),
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How far producers may be ahead, and how they change weights."""

    name: str
    staleness: int
    in_flight: bool = False


SCHEDULES = (
    Schedule("synchronous", 0),
    Schedule("staleness 1", 1),
    Schedule("staleness 2", 2),
    Schedule("staleness 4", 4),
    Schedule("staleness 2, in flight", 2, in_flight=True),
    Schedule("staleness 4, in flight", 4, in_flight=True),
)


def spec(pipeline: Pipeline, schedule: Schedule, steps: int, seed: int) -> dict[str, Any]:
    """The job of one simulated run."""
    groups = pipeline.groups_per_step
    reward = {"module": str(Path(__file__).with_name("long_tail.py")), "function": "reward"}
    return {
        "model": {"path": "builtin://tiny", "dtype": "float32", "gradientCheckpointing": False},
        "dataset": {"path": "builtin://addition"},
        "algorithm": {"klCoefficient": 0},
        "reward": {"type": "custom", "custom": reward},
        "numEpisodes": 10,
        "maxSteps": steps,
        "seed": seed,
        "sampling": {"numGenerations": COMPLETIONS, "maxNewTokens": 16, "maxPromptTokens": 16},
        "batch": {
            "inferenceBatchSize": 2 * pipeline.slots,
            "inferenceMicrobatchSize": pipeline.slots,
            "globalPrompts": groups,
            "trainMicrobatchSize": 16,
        },
        "buffer": {
            "maxStaleness": schedule.staleness,
            "maxPrompts": max(1, schedule.staleness) * groups,
        },
        "producers": {
            "replicas": pipeline.producers,
            "accelerator": "cpu",
            "backend": "vllm",
            "weightUpdate": "inFlight" if schedule.in_flight else "betweenRequests",
        },
        "consumers": {
            "replicas": pipeline.consumers,
            "processesPerReplica": 1,
            "accelerator": "cpu",
        },
        "rollouts": {"logInterval": 0},
    }


def ideal_seconds(pipeline: Pipeline, groups: Sequence[float], steps: int) -> float:
    """Wall time of the schedule without bounds: each slot takes the next group when it is free,
    each step starts when it has its groups and the step before has ended."""
    free = [0.0] * (pipeline.producers * pipeline.slots)
    ends = []
    for seconds in groups[: steps * pipeline.groups_per_step]:
        ends.append(heapq.heappop(free) + seconds)
        heapq.heappush(free, ends[-1])
    ends.sort()
    wall = 0.0
    for step in range(steps):
        complete = ends[min(len(ends), (step + 1) * pipeline.groups_per_step) - 1]
        wall = max(wall, complete) + pipeline.durations.train
    return wall


def bound_seconds(pipeline: Pipeline, groups: Sequence[float], steps: int, staleness: int) -> float:
    """Wall time of the ideal schedule with a bound on staleness and the time that weights need:
    a group only waits for the oldest version that its step may still use."""
    size, durations = pipeline.groups_per_step, pipeline.durations
    weights = durations.publish + durations.apply
    free = [0.0] * (pipeline.producers * pipeline.slots)
    applied, wall = [0.0], 0.0
    ends: list[float] = []
    for step in range(steps):
        for index in range(len(ends), min(len(groups), (step + staleness + 1) * size)):
            version = max(0, index // size - staleness)
            ends.append(max(heapq.heappop(free), applied[version]) + groups[index])
            heapq.heappush(free, ends[-1])
        wall = max(wall, sorted(ends)[min(len(ends), (step + 1) * size) - 1]) + durations.train
        applied.append(wall + weights)
    return wall


@dataclass(frozen=True, slots=True)
class Result:
    """One run, without its first step, which nothing can overlap."""

    samples_per_second: float
    efficiency: float
    consumer_idle: float
    producer_idle: float
    staleness: float
    of_ideal: float
    of_bound: float
    late: float
    """Delay of timers of the event loop, 99th percentile, in seconds."""
    cpu: float
    """CPU time of the driver per step, in seconds."""


def result(pipeline: Pipeline, run: Simulated, bound: int) -> Result:
    steps: Sequence[StepReport] = run.steps[1:]
    wall = sum(step.seconds for step in steps)
    busy = sum((1 - step.pipeline.producer_idle_ratio) * step.seconds for step in steps)
    train = len(steps) * pipeline.durations.train
    staleness = [value for step in steps for value in step.staleness]
    whole = sum(step.seconds for step in run.steps)
    return Result(
        samples_per_second=len(staleness) * COMPLETIONS / wall,
        efficiency=max(busy, train) / wall,
        consumer_idle=sum(step.phase_seconds["take"] for step in steps) / wall,
        producer_idle=1 - busy / wall,
        staleness=sum(staleness) / len(staleness),
        of_ideal=ideal_seconds(pipeline, run.group_seconds, len(run.steps)) / whole,
        of_bound=bound_seconds(pipeline, run.group_seconds, len(run.steps), bound) / whole,
        late=sorted(run.delays)[int(0.99 * len(run.delays))],
        cpu=run.driver_cpu_seconds / len(run.steps),
    )


def measure(pipeline: Pipeline, schedule: Schedule, steps: int, seed: int) -> Result:
    """One run in a fresh directory."""

    async def bounded(directory: Path) -> Simulated:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await simulate(
                spec(pipeline, schedule, steps, seed),
                pipeline.durations,
                producers=pipeline.producers,
                slots=pipeline.slots,
                directory=directory,
            )

    with tempfile.TemporaryDirectory() as directory:
        run = asyncio.run(bounded(Path(directory)))
        return result(pipeline, run, schedule.staleness)


def rows(pipeline: Pipeline, steps: int, repeats: int) -> list[list[str]]:
    """One row per schedule; a repeat runs all of them with the same draws."""
    results: dict[str, list[Result]] = {s.name: [] for s in SCHEDULES}
    for seed in range(repeats):
        for schedule in SCHEDULES:
            results[schedule.name].append(measure(pipeline, schedule, steps, seed))
    baseline = results[SCHEDULES[0].name]
    return [_row(f"{pipeline.name}: {name}", found, baseline) for name, found in results.items()]


def _row(name: str, found: Sequence[Result], baseline: Sequence[Result]) -> list[str]:
    rates = [result.samples_per_second for result in found]
    ratios = [rate / b.samples_per_second for rate, b in zip(rates, baseline, strict=True)]
    return [
        name,
        f"{Spread.of(rates):.0f}",
        f"{Spread.of(ratios):.2f}",
        f"{Spread.of([r.efficiency for r in found]):.0%}",
        f"{Spread.of([r.consumer_idle for r in found]):.0%}",
        f"{Spread.of([r.producer_idle for r in found]):.0%}",
        f"{Spread.of([r.staleness for r in found]):.1f}",
        f"{Spread.of([r.of_ideal for r in found]):.2f}",
        f"{Spread.of([r.of_bound for r in found]):.2f}",
        f"{Spread.of([1e3 * r.late for r in found]):.0f}",
        f"{Spread.of([1e3 * r.cpu for r in found]):.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", action="append", help="a pipeline by its name (all)")
    arguments = parser.parse_args()
    chosen = [p for p in PIPELINES if not arguments.only or p.name in arguments.only]
    print(machine("ray"))
    found = [row for p in chosen for row in rows(p, arguments.steps, arguments.repeats)]
    print(f"{arguments.repeats} x {arguments.steps} steps; at the end {load()}\n")
    head = ["producers + consumers", "samples\n/s", "ratio", "effi-\nciency", "consumer\nidle"]
    head += [
        "producer\nidle",
        "stale-\nness",
        "of\nideal",
        "of\nbound",
        "timer p99\nms late",
        "driver CPU\nms/step",
    ]
    print(table(head, found))


if __name__ == "__main__":
    main()
