# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib>=3.9"]
# ///
"""Draws the README's picture from a run directory: `uv run docs/images/quickstart.py RUN`.

The project itself does not need matplotlib, so the script declares it for uv.
"""

import json
import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot

WINDOW = 10
"""Steps of a running mean."""


def running_mean(values: list[float]) -> list[float]:
    """The mean of each value and those before it, at most `WINDOW` of them."""
    windows = [values[max(0, end - WINDOW) : end] for end in range(1, len(values) + 1)]
    return [sum(window) / len(window) for window in windows]


def evaluations(run: Path) -> dict[int, float]:
    """Held-out accuracy by step."""
    found = {}
    for file in (run / "eval").glob("held-out_step_*.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        step = int(re.findall(r"\d+", file.stem)[-1])
        found[step] = sum(row["accuracy"] for row in rows) / len(rows)
    return dict(sorted(found.items()))


def draw(run: Path, output: Path) -> None:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    records = [record for line in lines if (record := json.loads(line))["event"] == "step"]
    steps = [int(record["grpo_step"]) for record in records]
    held_out = evaluations(run)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    sampled = running_mean([record["grpo_accuracy_mean"] for record in records])
    label = f"sampled, mean of {WINDOW} steps"
    left.plot(steps, sampled, color="#9ecae1", linewidth=2, label=label)
    left.plot(held_out.keys(), held_out.values(), "o-", color="#08519c", label="held out")
    left.set(title="Accuracy", xlabel="optimizer step", ylabel="share of right answers")
    left.set_ylim(0.35, 1.02)
    left.legend(loc="lower right", frameon=False)
    idle = running_mean([100 * record["grpo_consumer_idle_ratio"] for record in records])
    right.fill_between(steps, idle, color="#fdae6b", alpha=0.5)
    right.plot(steps, idle, color="#d94801")
    right.set(
        title=f"Consumers waiting for rollouts, mean of {WINDOW} steps",
        xlabel="optimizer step",
        ylabel="% of the step",
    )
    right.set_ylim(0, 100)
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=100)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(__file__).with_suffix(".png"))
