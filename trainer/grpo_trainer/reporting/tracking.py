"""Trackers: TensorBoard, and Weights & Biases if the spec enables it."""

import json
import math
import netrc
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from ..errors import InvalidInputError
from ..events import EvaluationReport, LoggedSample, StepReport
from ..spec import GRPOJob, GRPOJobSpec
from .metric import Section
from .metrics import STEP_METRICS, Series
from .paths import RunPaths
from .sink import Sink

_WANDB_HOST = "api.wandb.ai"
_STEP_SECTIONS = {metric.name: metric.section for metric in STEP_METRICS}
_SHOWN = 2
"""Completions of either end that a tracker shows."""


def check_tracking(spec: GRPOJobSpec) -> None:
    """Check that every tracker of the spec can work.

    Raises InvalidInputError with the field, what is missing and how to fix it.
    """
    faults = []
    if spec.tracking.tensorboard and find_spec("tensorboard") is None:
        faults.append(
            "spec.tracking.tensorboard: Invalid value: true: the package tensorboard is not "
            "installed; install it or set false"
        )
    if spec.tracking.wandb is not None:
        if find_spec("wandb") is None:
            faults.append(
                "spec.tracking.wandb: Forbidden: the package wandb is not installed; install "
                "grpo-operator[wandb] or remove the field"
            )
        elif not _wandb_can_log_in():
            faults.append(
                "spec.tracking.wandb: Forbidden: no API key; set WANDB_API_KEY, run `wandb "
                "login`, or set WANDB_MODE=offline"
            )
    if faults:
        raise InvalidInputError(faults)


def make_trackers(job: GRPOJob, layout: RunPaths) -> list[Sink]:
    """A sink for each tracker of the spec; `check_tracking` has passed."""
    trackers: list[Sink] = []
    if job.spec.tracking.tensorboard:
        trackers.append(TensorBoard(job, layout))
    if job.spec.tracking.wandb is not None:
        trackers.append(Wandb(job, layout))
    return trackers


class TensorBoard(Sink):
    """Scalars, sampled completions and hyperparameters; one event file per start of training."""

    def __init__(self, job: GRPOJob, layout: RunPaths) -> None:
        self._parameters = hyperparameters(job)
        self._layout = layout
        self._writer: Any = None

    def begin(self, step: int, total_steps: int) -> None:
        # Slow imports that only a run needs.
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        self.close()
        self._writer = SummaryWriter(str(self._layout.tensorboard), purge_step=step + 1)
        # SummaryWriter.add_hparams would write them to a directory of their own.
        for summary in hparams(self._parameters, {"rollout/reward_mean": 0.0}):
            self._writer.file_writer.add_summary(summary)

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        for tag, value in step_scalars(values).items():
            self._writer.add_scalar(tag, value, report.step)
        self._writer.flush()

    def evaluation(self, report: EvaluationReport) -> None:
        for tag, value in evaluation_scalars(report).items():
            self._writer.add_scalar(tag, value, report.step)
        self._writer.flush()

    def rollouts(self, step: int, samples: Sequence[LoggedSample]) -> None:
        self._writer.add_text("rollout/completions", completions_text(samples), step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class Wandb(Sink):
    """The same scalars; the step is a metric, so that repeated steps can be logged again."""

    def __init__(self, job: GRPOJob, layout: RunPaths) -> None:
        import wandb

        spec = job.spec.tracking.wandb
        assert spec is not None
        if not layout.wandb_id.exists():
            layout.wandb_id.write_text(secrets.token_hex(8))
        self._run: Any = wandb.init(
            project=job.spec.tracking.project,
            entity=spec.entity,
            name=job.metadata.name,
            id=layout.wandb_id.read_text(),
            resume="allow",
            dir=str(layout.root),
            config=job.to_manifest()["spec"],
        )
        self._run.define_metric("*", step_metric="train/step")

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        self._run.log(step_scalars(values))

    def evaluation(self, report: EvaluationReport) -> None:
        self._run.log({**evaluation_scalars(report), "train/step": report.step})

    def close(self) -> None:
        self._run.finish()


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
    }


def completions_text(samples: Sequence[LoggedSample]) -> str:
    """The completions with the highest and the lowest rewards, in Markdown."""
    ranked = sorted(samples, key=lambda s: -math.inf if s.reward is None else s.reward)
    shown = [
        *ranked[: -_SHOWN - 1 : -1],
        *ranked[: max(0, min(_SHOWN, len(ranked) - _SHOWN))][::-1],
    ]
    return "\n\n".join(_sample_text(sample) for sample in shown)


def _sample_text(sample: LoggedSample) -> str:
    reward = "not scored" if sample.reward is None else f"reward {sample.reward:g}"
    title = f"**{reward}**, advantage {sample.advantage:.3f}, reference answer {sample.answer}"
    return "\n\n".join([title, _code(sample.prompt), _code(sample.completion)])


def _code(text: str) -> str:
    """An indented block, in which nothing is markup."""
    printable = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "\n".join(f"    {line}" for line in printable.splitlines())


def hyperparameters(job: GRPOJob) -> dict[str, str | float | bool]:
    """The fields of the spec by path, `algorithm.learningRate`, with defaults; lists as JSON."""
    return dict(_flat("", job.spec.model_dump(mode="json", by_alias=True)))


def _flat(path: str, value: Any) -> Iterator[tuple[str, str | float | bool]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{path}.{key}" if path else key, inner)
    elif value is not None:
        yield path, value if isinstance(value, str | int | float) else json.dumps(value)


def _wandb_can_log_in() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    if os.environ.get("WANDB_MODE") in ("offline", "disabled", "dryrun"):
        return True
    try:
        return netrc.netrc().authenticators(_WANDB_HOST) is not None
    except (FileNotFoundError, netrc.NetrcParseError):
        return False
