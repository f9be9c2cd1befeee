"""Weight transfer from consumer to producer, compared with a plain copy of the same bytes.

    .venv/bin/python -m benchmarks.weights [--repeats N] [--threads N] [--only MB ...]

A consumer with ColossalAI's Booster makes and publishes versions, a producer with the transformers
engine takes them over: the Ray actors of a run, with random models in fp32.
"""

import argparse
import os
import secrets
import signal
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from .table import Spread, load, machine, table

if TYPE_CHECKING:
    from .weight_path import Measured

SIZES = {"1.6": (128, 320), "50": (768, 2048), "500": (2048, 8192)}
"""Approximate megabytes of a model -> its hidden and intermediate width."""


def rows(measured: "Measured") -> list[list[str]]:
    """A row for each part of the transfer, the reference first."""
    lines = []
    for part in (field.name for field in fields(measured.trips[0])):
        seconds = Spread.of([getattr(trip, part) for trip in measured.trips])
        ratio = Spread.of([getattr(trip, part) / trip.memcpy for trip in measured.trips])
        milliseconds = Spread.of([1e3 * getattr(trip, part) for trip in measured.trips])
        rate = measured.weight_bytes / 1e9 / seconds.median
        name = f"{measured.weight_bytes / 1e6:.1f} MB, {part}"
        lines.append([name, f"{milliseconds:.2f}", f"{rate:.2f}", f"{ratio:.1f}"])
    return lines


def settle_environment() -> None:
    """Set as a run does before Ray is imported: every process reads these when it starts."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(16))
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # The default handler of SIGTERM would leave Ray's processes behind for a while.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=10, help="versions of each size (10)")
    parser.add_argument("--threads", type=int, default=1, help="OMP_NUM_THREADS of an actor (1)")
    parser.add_argument("--only", action="append", choices=SIZES, metavar="MB")
    arguments = parser.parse_args()
    settle_environment()
    from .weight_path import Size, measure

    print(machine("torch", "colossalai", "transformers", "ray"))
    sizes = [Size(*SIZES[name]) for name in arguments.only or SIZES]
    with tempfile.TemporaryDirectory(prefix="grpo-benchmark-") as directory:
        measured = measure(sizes, arguments.repeats, arguments.threads, Path(directory))
    print(f"{arguments.repeats} versions, {arguments.threads} threads; at the end {load()}\n")
    lines = [line for of_size in measured for line in rows(of_size)]
    print(table(["", "ms", "GB/s", "ratio to memcpy"], lines))


if __name__ == "__main__":
    main()
