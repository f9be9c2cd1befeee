"""Learning curves: the quickstart from several seeds with each backend, on held-out sums.

    .venv/bin/python -m benchmarks.curves [--seeds N] [--steps N] [--only BACKEND ...]

Settings are those of the quickstart, equal for both backends except for the seed.
"""

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from grpo_trainer.spec import Backend

from .pipeline import QUICKSTART
from .runs import Finished, run
from .table import load, machine, table

GOAL = 0.9
"""Accuracy on held-out sums that counts as learned."""


def manifest(backend: str, seed: int, steps: int, interval: int) -> dict[str, Any]:
    """The quickstart with a backend and a seed."""
    document: dict[str, Any] = yaml.safe_load(QUICKSTART.read_text())
    spec = document["spec"]
    spec |= {"maxSteps": steps, "seed": seed, "checkpoint": {"interval": 0}}
    spec["evaluation"]["interval"] = interval
    spec["producers"]["backend"] = backend
    return document


def curve(directory: Path) -> dict[int, float]:
    """Accuracy by step, from the files of a run's evaluations."""
    accuracies = {}
    for file in (directory / "run" / "eval").glob("*_step_*.jsonl"):
        samples = [json.loads(line) for line in file.read_text().splitlines()]
        step = int(file.stem.rpartition("_")[2])
        accuracies[step] = fmean(sample["accuracy"] for sample in samples)
    return dict(sorted(accuracies.items()))


def row(backend: str, seed: int, of_run: Finished, accuracies: dict[int, float]) -> list[str]:
    """A row of the table."""
    learned = next((step for step, accuracy in accuracies.items() if accuracy >= GOAL), None)
    first, *_, last = accuracies.values()
    points = " ".join(f"{accuracy:.2f}" for accuracy in accuracies.values())
    rate = of_run.summary["samples_per_second"]
    return [
        *(backend, str(seed), f"{first:.3f}", f"{last:.3f}"),
        *("never" if learned is None else str(learned), f"{rate:.0f}", points),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="runs of each backend (3)")
    parser.add_argument("--steps", type=int, default=150, help="optimizer steps of a run (150)")
    parser.add_argument("--interval", type=int, default=10, help="steps per evaluation (10)")
    parser.add_argument("--only", action="append", choices=[str(b) for b in Backend])
    parser.add_argument("--deadline", type=float, default=600, help="seconds of one run (600)")
    arguments = parser.parse_args()
    # The default handler of SIGTERM would leave the current run behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(machine("torch", "colossalai", "transformers", "ray"))
    rows = []
    with tempfile.TemporaryDirectory(prefix="grpo-benchmark-") as temporary:
        for seed in range(1, arguments.seeds + 1):
            for backend in arguments.only or list(map(str, Backend)):
                job = manifest(backend, seed, arguments.steps, arguments.interval)
                directory = Path(temporary) / f"{backend}-{seed}"
                finished = run(job, directory, seconds=arguments.deadline)
                rows.append(row(backend, seed, finished, curve(directory)))
                print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    print(f"{arguments.steps} steps of 256 samples; at the end {load()}\n")
    head = ["", "seed", "initial", "final", f"steps to\n{GOAL:g}", "samples\n/s"]
    print(table([*head, f"accuracy every {arguments.interval} steps"], sorted(rows)))


if __name__ == "__main__":
    main()
