"""A run directory as plain records. Torn lines and missing files are left out, not refused: a
report of a run that crashed is worth as much as one of a run that ended."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ..errors import InvalidInputError
from ..estimates import estimate
from ..reporting.history import EVALUATION

_LABELLED = re.compile(r"(\w+)\{\w+=(.*)\}")
_EVALUATION_FILE = re.compile(r"(.+)_step_(\d+)\.jsonl")
_ROLLOUT_FILE = re.compile(r"step_(\d+)\.jsonl")


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric over the steps that have it."""

    steps: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation set at one step."""

    dataset: str
    step: int
    samples: int
    accuracy: float
    standard_error: float | None
    """Of the mean over the rows; None with fewer than two."""
    pass_at: Mapping[int, float] = field(default_factory=dict)
    """pass@k by k; empty for one sample of each row."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion that the run logged."""

    step: int
    dataset: str
    """Name of the evaluation set; empty for a rollout."""
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunData:
    """Everything that a report shows of a run."""

    name: str
    directory: Path
    manifest: Mapping[str, Any]
    summary: Mapping[str, Any]
    """Empty while the run has not ended."""
    environment: Mapping[str, str]
    """What its newest start ran on; empty for a run of an earlier release."""
    curves: Mapping[str, Curve]
    evaluations: tuple[Evaluation, ...]
    samples: tuple[Sample, ...]
    omitted_samples: int
    """Completions beyond the limit; the newest steps are kept."""


def load_run(directory: Path, max_sample_bytes: int) -> RunData:
    """Read a run directory, with at most `max_sample_bytes` of logged completions.

    Raises InvalidInputError when the directory holds no run.
    """
    spec = directory / "spec.json"
    if not spec.is_file():
        raise InvalidInputError(
            f"{directory}: not a run directory: it holds no spec.json; give the directory that "
            "`grpo run` printed as its run directory"
        )
    evaluation_files = _numbered(directory / "eval", _EVALUATION_FILE)
    rollout_files = _numbered(directory / "rollouts", _ROLLOUT_FILE)
    evaluations = tuple(_evaluation(*file) for file in evaluation_files)
    files = sorted([*evaluation_files, *rollout_files], key=lambda file: file[1], reverse=True)
    samples, omitted = _samples(files, max_sample_bytes)
    manifest = _json_object(spec)
    return RunData(
        name=str(manifest.get("metadata", {}).get("name", directory.name)),
        directory=directory.resolve(),
        manifest=manifest,
        summary=_json_object(directory / "summary.json"),
        environment=_json_object(directory / "environment.json"),
        curves=_curves(directory / "metrics.jsonl"),
        evaluations=tuple(sorted(evaluations, key=lambda e: (e.dataset, e.step))),
        samples=samples,
        omitted_samples=omitted,
    )


def flat_name(key: str) -> str:
    """`grpo_clip_ratio{side=low}` as `grpo_clip_ratio_low`; other names as they are."""
    labelled = _LABELLED.fullmatch(key)
    return f"{labelled[1]}_{labelled[2]}" if labelled else key


def _curves(path: Path) -> dict[str, Curve]:
    points: dict[str, list[tuple[int, float]]] = {}
    for row in _rows(path):
        step = row.get("grpo_step")
        if not isinstance(step, int | float) or row.get("event") == EVALUATION:
            continue
        for key, value in row.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                points.setdefault(flat_name(key), []).append((int(step), float(value)))
    return {name: Curve(*zip(*pairs, strict=True)) for name, pairs in points.items()}


def _numbered(directory: Path, pattern: re.Pattern[str]) -> list[tuple[str, int, Path]]:
    """(data set or "", step, path) of the files whose name fits."""
    found: list[tuple[str, int, Path]] = []
    for path in directory.glob("*.jsonl"):
        match = pattern.fullmatch(path.name)
        if match:
            *dataset, step = match.groups()
            found.append((unquote(dataset[0]) if dataset else "", int(step), path))
    return found


def _evaluation(dataset: str, step: int, path: Path) -> Evaluation:
    by_row: dict[str, list[float]] = {}
    count = 0
    for row in _rows(path):
        if "accuracy" in row:
            count += 1
            scored = row.get("reward", 0.0) is not None
            by_row.setdefault(str(row.get("source", count)), [])
            by_row[str(row.get("source", count))] += [float(row["accuracy"])] if scored else []
    found = estimate(list(by_row.values()))
    return Evaluation(dataset, step, count, found.accuracy, found.standard_error, found.pass_at)


def _samples(files: list[tuple[str, int, Path]], max_bytes: int) -> tuple[tuple[Sample, ...], int]:
    """Completions of the newest steps first, until the limit; and how many were left out."""
    kept: list[Sample] = []
    omitted, left = 0, max_bytes
    for dataset, step, path in files:
        left -= path.stat().st_size
        rows = list(_rows(path))
        if left < 0:
            omitted += len(rows)
        else:
            kept += (Sample(step, dataset, row) for row in rows)
    kept.sort(key=lambda sample: (sample.step, sample.dataset))
    return tuple(kept), omitted


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Whole JSON objects of a JSONL file; nothing for a file that is not there."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                row = json.loads(line, parse_constant=lambda _: None)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row


def _json_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
