"""What trackers show: tags and values, sampled completions, hyperparameters."""

import json
import math
from collections.abc import Mapping, Sequence

from ...events import EvaluationReport, LoggedSample
from ...flatten import flat
from ...spec import GRPOJob
from ..metric import Section
from ..metrics import STEP_METRICS, Series

_STEP_SECTIONS = {metric.name: metric.section for metric in STEP_METRICS}
_SHOWN = 2
"""Completions of either end that a tracker shows."""
COMPLETIONS = "rollout/completions"


def step_scalars(values: Mapping[Series, float]) -> dict[str, float]:
    """Tags and finite values of the metrics of a step: `train/clip_ratio_low`."""
    return {
        f"{_STEP_SECTIONS[series.name]}/{str(series).removeprefix('grpo_')}": value
        for series, value in values.items()
        if series.name in _STEP_SECTIONS and math.isfinite(value)
    }


def evaluation_scalars(report: EvaluationReport) -> dict[str, float]:
    """Tags and values of an evaluation: `eval/<set>/accuracy`."""
    folder = f"{Section.EVAL}/{report.dataset}"
    return {
        f"{folder}/accuracy": report.accuracy,
        f"{folder}/format_accuracy": report.format_accuracy,
        f"{folder}/response_tokens_mean": report.response_tokens_mean,
        **{f"{folder}/pass_at_{k}": share for k, share in report.pass_at.items()},
    }


def completions_text(samples: Sequence[LoggedSample]) -> str:
    """The completions with the highest and the lowest rewards, in Markdown."""
    return "\n\n".join(_sample_text(sample) for sample in best_and_worst(samples))


def best_and_worst(samples: Sequence[LoggedSample]) -> list[LoggedSample]:
    """The completions with the highest and the lowest rewards, each once, best first."""
    ranked = sorted(samples, key=lambda s: -math.inf if s.reward is None else s.reward)
    worst = max(0, min(_SHOWN, len(ranked) - _SHOWN))
    return [*ranked[: -_SHOWN - 1 : -1], *ranked[:worst][::-1]]


def _sample_text(sample: LoggedSample) -> str:
    reward = "not scored" if sample.reward is None else f"reward {sample.reward:g}"
    title = f"**{reward}**, advantage {sample.advantage:.3f}, reference answer {sample.answer}"
    return "\n\n".join([title, _code(sample.prompt), _code(sample.completion)])


def _code(text: str) -> str:
    """An indented block, in which nothing is markup."""
    return "\n".join(f"    {line}" for line in encodable(text).splitlines())


def encodable(text: str) -> str:
    """Text with lone surrogates as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def hyperparameters(job: GRPOJob) -> dict[str, str | float | bool]:
    """The fields of the spec by path, `algorithm.learningRate`, with defaults; lists as JSON."""
    return {
        path: value if isinstance(value, str | int | float) else json.dumps(value)
        for path, value in flat(job.spec.plain())
        if value is not None and value != {}
    }
