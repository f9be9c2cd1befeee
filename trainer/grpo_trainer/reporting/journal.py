"""The files of the run directory: metrics, evaluations, rollouts, spec and summary."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..events import BestCheckpoint, EvaluationReport, LoggedSample, StepReport, Summary
from ..spec import GRPOJob
from .history import EVALUATION, STEP, Row, best_evaluation, read_rows
from .metrics import EVALUATION_ACCURACY, EVALUATION_METRICS, EVALUATION_PASS, Series
from .paths import RunPaths
from .sink import Sink


class Journal(Sink):
    """Appends a row per step and per evaluation to `metrics.jsonl`; other files are written whole.

    All files are ASCII: a completion may contain any code point, lone surrogates included, and a
    log must not end a run.
    """

    def __init__(self, layout: RunPaths, job: GRPOJob) -> None:
        self._layout = layout
        self._rows: list[Row] = []
        """The evaluation rows of the file."""
        layout.create()
        _write_atomically(layout.spec, json.dumps(job.to_manifest(), indent=2) + "\n")

    def environment(self, found: Mapping[str, str]) -> None:
        """What the run runs on."""
        _write_atomically(self._layout.environment, _json(found, indent=2) + "\n")

    def rewind(self, step: int) -> dict[Series, float]:
        """Remove the rows of steps beyond `step`, and a torn last row.

        Returns the values of the last row before the removal, so that totals include work that is
        repeated; empty for a new run.
        """
        path = self._layout.metrics
        self._rows = []
        if not path.exists():
            return {}
        rows = read_rows(path)
        kept = [row for row in rows if row["grpo_step"] <= step]
        _write_atomically(path, "".join(_json(row) + "\n" for row in kept))
        self._rows = [row for row in kept if row["event"] == EVALUATION]
        return _last_values(rows)

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        metrics = {str(s): v for s, v in values.items() if s.name not in EVALUATION_METRICS}
        note = {"note": report.note} if report.note else {}
        self._append(STEP, metrics | note)

    def evaluation(self, report: EvaluationReport) -> None:
        path = self._layout.evaluation(report.dataset, report.step)
        _write_lines(path, (asdict(sample) for sample in report.samples))
        row = {
            "grpo_step": report.step,
            "dataset": report.dataset,
            EVALUATION_ACCURACY: report.accuracy,
            "format_accuracy": report.format_accuracy,
            "response_tokens_mean": report.response_tokens_mean,
            "samples": len(report.samples),
            "seconds": report.seconds,
            **_spread(report),
        }
        if any(_same_evaluation(row, known) for known in self._rows):
            # A resumed run repeats an evaluation that had ended after its checkpoint.
            others = [r for r in read_rows(self._layout.metrics) if not _same_evaluation(row, r)]
            _write_atomically(self._layout.metrics, "".join(_json(r) + "\n" for r in others))
        self._rows.append(self._append(EVALUATION, row))

    def rollouts(self, step: int, samples: Sequence[LoggedSample]) -> None:
        _write_lines(self._layout.rollout(step), map(_logged, samples))

    def finish(self, summary: Summary) -> None:
        _write_atomically(self._layout.summary, _json(asdict(summary), indent=2) + "\n")

    def best_checkpoint(self) -> BestCheckpoint | None:
        """The complete checkpoint with the highest evaluation accuracy, the newest of equal ones.

        Several sets count equally. None when no evaluated step has a checkpoint.
        """
        checkpoints = self._layout.complete_checkpoints()
        best = best_evaluation(self._rows, checkpoints)
        return None if best is None else BestCheckpoint(best[0], str(checkpoints[best[0]]), best[1])

    def _append(self, event: str, values: Mapping[str, Any]) -> Row:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        row = {"time": time, "event": event, **values}
        with self._layout.metrics.open("a", encoding="ascii") as file:
            file.write(_json(row) + "\n")
        return row


def _last_values(rows: Sequence[Row]) -> dict[Series, float]:
    """The metrics of the last step, and the newest evaluation of each set."""
    values: dict[Series, float] = {}
    for row in rows:
        if row["event"] == EVALUATION:
            for name in EVALUATION_METRICS & row.keys():
                values[Series(name, row["dataset"])] = row[name]
            continue
        for key, value in row.items():
            series = Series.parse(key)
            if series is not None and isinstance(value, int | float):
                values[series] = value
    return values


def _spread(report: EvaluationReport) -> Row:
    """What a set with several rows, or several samples of each, has in addition."""
    found: Row = {}
    if report.standard_error is not None:
        found["standard_error"] = report.standard_error
    if report.pass_at:
        found[EVALUATION_PASS] = report.pass_at[max(report.pass_at)]
        found |= {f"pass_at_{k}": share for k, share in report.pass_at.items()}
    return found


def _logged(sample: LoggedSample) -> Row:
    """The fields of a completion, without those of tokens that are not logged."""
    return {
        key: value
        for key, value in asdict(sample).items()
        if value is not None or key not in ("tokens", "log_ratios")
    }


def _same_evaluation(one: Row, other: Row) -> bool:
    return (one["grpo_step"], one["dataset"]) == (other["grpo_step"], other.get("dataset"))


def _write_lines(path: Path, rows: Iterable[Row]) -> None:
    _write_atomically(path, "".join(_json(row) + "\n" for row in rows))


def _write_atomically(path: Path, text: str) -> None:
    """Replace the file in one step, durably: a reader sees the old or the new content."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _json(value: Any, indent: int | None = None) -> str:
    """Strict JSON: ASCII, and null for what is not finite."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
