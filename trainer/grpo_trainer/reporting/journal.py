"""The files of the run directory: metrics, evaluations, rollouts, spec and summary."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..events import EvaluationReport, LoggedSample, StepReport, Summary
from ..spec import GRPOJob
from .metrics import Series
from .paths import RunPaths
from .sink import Sink


class Journal(Sink):
    """Appends a line per step to `metrics.jsonl`; every other file is written whole or not at all.

    All of it is ASCII: a completion may hold any code point, lone surrogates included, and a log
    must never end a run.
    """

    def __init__(self, layout: RunPaths, job: GRPOJob) -> None:
        self._layout = layout
        self._last: tuple[int, dict[str, Any]] | None = None
        """The last line and where it begins."""
        self._late: dict[str, Any] = {}
        """Accuracies of evaluations since that line."""
        layout.create()
        _write_atomically(layout.spec, json.dumps(job.to_manifest(), indent=2) + "\n")

    def rewind(self, step: int) -> dict[Series, float]:
        """Cut off the lines of steps beyond `step`, and a torn last line.

        Returns the values of the last whole line before the cut, so that totals count work that is
        done again; none for a new run.
        """
        path, kept, last = self._layout.metrics, 0, dict[str, Any]()
        self._last, self._late = None, {}
        if not path.exists():
            return {}
        cut = False
        with path.open("rb") as lines:
            for raw in lines:
                line = _whole_line(raw)
                if line is None:
                    break
                last = line
                cut = cut or line["grpo_step"] > step
                if not cut:
                    self._last = (kept, line)
                    kept += len(raw)
        os.truncate(path, kept)
        return {Series.parse(k): v for k, v in last.items() if isinstance(v, int | float)}

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        line: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        line |= {str(series): value for series, value in values.items()}
        if report.note:
            line["note"] = report.note
        self._late = {}
        self._append(line)

    def evaluation(self, report: EvaluationReport) -> None:
        path = self._layout.evaluation(report.dataset, report.step)
        _write_lines(path, (asdict(sample) for sample in report.samples))
        self._late[str(Series("grpo_eval_accuracy", report.dataset))] = report.accuracy

    def rollouts(self, step: int, samples: Sequence[LoggedSample]) -> None:
        _write_lines(self._layout.rollout(step), (asdict(sample) for sample in samples))

    def finish(self, summary: Summary) -> None:
        # The last evaluation ends after the last step, and no line would tell of it.
        if self._last is not None and self._late:
            offset, line = self._last
            os.truncate(self._layout.metrics, offset)
            self._append(line | self._late)
        _write_atomically(self._layout.summary, _json(asdict(summary), indent=2) + "\n")

    def _append(self, line: dict[str, Any]) -> None:
        with self._layout.metrics.open("a", encoding="ascii") as file:
            self._last = (file.tell(), line)
            file.write(_json(line) + "\n")


def _whole_line(raw: bytes) -> dict[str, Any] | None:
    """A line as written by `step`, or None when a crash tore it."""
    if not raw.endswith(b"\n"):
        return None
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) and "grpo_step" in line else None


def _write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    _write_atomically(path, "".join(_json(row) + "\n" for row in rows))


def _write_atomically(path: Path, text: str) -> None:
    """Replace the file in one step, durably, so that a reader sees the old or the new content."""
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
