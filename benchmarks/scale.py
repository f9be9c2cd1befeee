"""CPU time, delays and memory of the driver with many producers and consumers.

    .venv/bin/python -m benchmarks.scale [--producers N]... [--steps N] [--tokens N]

The driver's loop, buffer, scorer, weight publisher and reports are real; producers and consumers
wait (`benchmarks/simulated.py`). A step has one group of 16 completions for each producer and takes
10 s. Rollouts arrive without Ray, so the calls to actors are not part of it.
"""

import argparse
import asyncio
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from .bubble import Pipeline, Schedule, spec
from .simulated import Durations, Simulated, simulate
from .table import load, machine, table

COMPLETIONS = 16
STEP_SECONDS = 10.0
MIB = 1 << 20


@dataclass(slots=True)
class Memory:
    """The largest resident set of this process, sampled."""

    peak: int = 0

    def watch(self, ended: threading.Event) -> None:
        process = psutil.Process()
        while not ended.wait(0.1):
            self.peak = max(self.peak, process.memory_info().rss)


def pipeline(producers: int, tokens: int) -> Pipeline:
    """One group at a time for each producer, a quarter as many consumers."""
    durations = Durations(
        group=STEP_SECONDS,
        spread=0.15,
        train=STEP_SECONDS,
        publish=0.05 * STEP_SECONDS,
        apply=0.02 * STEP_SECONDS,
        completions=COMPLETIONS,
        tokens=tokens,
    )
    return Pipeline(f"{producers} producers", producers, max(1, producers // 4), 1, durations)


def run(chosen: Pipeline, steps: int) -> Simulated:
    """One run in a fresh directory."""
    job = spec(chosen, Schedule("", staleness=2, in_flight=True), steps, seed=0)
    job["sampling"]["numGenerations"] = COMPLETIONS
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(
            simulate(
                job,
                chosen.durations,
                producers=chosen.producers,
                slots=chosen.slots,
                directory=Path(directory),
            )
        )


def row(chosen: Pipeline, steps: int) -> list[str]:
    """Measurements of one run."""
    memory, ended = Memory(), threading.Event()
    before = psutil.Process().memory_info().rss
    watcher = threading.Thread(target=memory.watch, args=(ended,))
    watcher.start()
    began = time.monotonic()
    try:
        found = run(chosen, steps)
    finally:
        ended.set()
        watcher.join()
    delays = sorted(found.delays)
    cpu = found.driver_cpu_seconds / len(found.steps)
    return [
        chosen.name,
        str(chosen.consumers),
        f"{chosen.durations.tokens:,}",
        f"{1e3 * cpu:.0f}",
        f"{cpu / STEP_SECONDS:.1%}",
        f"{1e6 * cpu / chosen.producers:.0f}",
        f"{1e3 * delays[int(0.99 * len(delays))]:.0f}",
        f"{1e3 * delays[-1]:.0f}",
        f"{(memory.peak - before) / MIB:.0f}",
        f"{time.monotonic() - began:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--producers", type=int, action="append", help="64, 256, 1024")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=4096, help="of a completion")
    arguments = parser.parse_args()
    print(machine("ray"))
    counts = arguments.producers or [64, 256, 1024]
    rows = [row(pipeline(count, arguments.tokens), arguments.steps) for count in counts]
    print(f"{arguments.steps} steps; at the end {load()}\n")
    head = ["", "consumers", "tokens", "driver CPU\nms/step", "of 10 s", "us/group"]
    print(table([*head, "timer p99\nms late", "worst", "memory\nMiB", "run\ns"], rows))


if __name__ == "__main__":
    main()
