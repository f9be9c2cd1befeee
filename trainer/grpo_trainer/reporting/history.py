"""Reading `metrics.jsonl`: one row per step and one per evaluation."""

import json
from collections import defaultdict
from collections.abc import Container, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from .metrics import EVALUATION_ACCURACY

Row = dict[str, Any]

STEP = "step"
EVALUATION = "evaluation"


def read_rows(path: Path) -> list[Row]:
    """All rows in order, up to the first one that a crash left incomplete."""
    rows: list[Row] = []
    for raw in path.read_bytes().splitlines(keepends=True):
        row = _complete_row(raw)
        if row is None:
            break
        rows.append(row)
    return rows


def of_event(rows: Sequence[Row], event: str) -> list[Row]:
    """The rows of one kind, `step` or `evaluation`."""
    return [row for row in rows if row["event"] == event]


def accuracies(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Accuracy by step, for each evaluation set."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for row in of_event(rows, EVALUATION):
        found[row["dataset"]][row["grpo_step"]] = row[EVALUATION_ACCURACY]
    return dict(found)


def best_evaluation(rows: Sequence[Row], among: Container[int]) -> tuple[int, float] | None:
    """Step and accuracy, averaged over the sets, of the best evaluation of the steps given."""
    by_step: dict[int, list[float]] = defaultdict(list)
    for curve in accuracies(rows).values():
        for step, accuracy in curve.items():
            if step in among:
                by_step[step].append(accuracy)
    means = [(fmean(values), step) for step, values in by_step.items()]
    if not means:
        return None
    accuracy, step = max(means)
    return step, accuracy


def _complete_row(raw: bytes) -> Row | None:
    if not raw.endswith(b"\n"):
        return None
    try:
        row = json.loads(raw)
    except ValueError:
        return None
    if not isinstance(row, dict) or "grpo_step" not in row:
        return None
    # Files of earlier versions have rows of steps only, without a kind.
    return {**row, "event": row.get("event", STEP)}
