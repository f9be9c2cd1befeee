"""TensorBoard, and Weights & Biases where it is asked for."""

import math
import netrc
import os
import secrets
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from ..errors import InvalidInputError
from ..events import EvaluationReport, StepReport
from ..spec import GRPOJob, GRPOJobSpec
from .metrics import STEP_METRICS, Series
from .paths import RunPaths
from .sink import Sink

_WANDB_HOST = "api.wandb.ai"
_STEP_NAMES = frozenset(metric.name for metric in STEP_METRICS)


def check_tracking(spec: GRPOJobSpec) -> None:
    """See that every tracker asked for can work, before anything costly starts.

    Raises InvalidInputError naming the field, what lacks and what would help.
    """
    faults = []
    if spec.tracking.tensorboard and find_spec("tensorboard") is None:
        faults.append(
            "spec.tracking.tensorboard: true needs the package tensorboard; install it or set false"
        )
    if spec.tracking.wandb is not None:
        if find_spec("wandb") is None:
            faults.append(
                "spec.tracking.wandb: needs the package wandb; install grpo-operator[wandb] or "
                "leave the field out"
            )
        elif not _wandb_can_log_in():
            faults.append(
                "spec.tracking.wandb: no API key; set WANDB_API_KEY, run `wandb login`, or set "
                "WANDB_MODE=offline"
            )
    if faults:
        raise InvalidInputError(faults)


def make_trackers(job: GRPOJob, layout: RunPaths) -> list[Sink]:
    """A sink per tracker of the spec; `check_tracking` has passed."""
    trackers: list[Sink] = []
    if job.spec.tracking.tensorboard:
        trackers.append(TensorBoard(layout))
    if job.spec.tracking.wandb is not None:
        trackers.append(Wandb(job, layout))
    return trackers


class TensorBoard(Sink):
    """Scalars under the metrics' names, one event file per start of training."""

    def __init__(self, layout: RunPaths) -> None:
        self._layout = layout
        self._writer: Any = None

    def begin(self, step: int, total_steps: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # slow, and only a run needs it

        self.close()
        self._writer = SummaryWriter(str(self._layout.tensorboard), purge_step=step + 1)

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        for tag, value in step_scalars(values).items():
            self._writer.add_scalar(tag, value, report.step)
        self._writer.flush()

    def evaluation(self, report: EvaluationReport) -> None:
        self._writer.add_scalar(
            f"grpo_eval_accuracy/{report.dataset}", report.accuracy, report.step
        )

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class Wandb(Sink):
    """The same scalars; the step is a metric, so that redone steps may be logged again."""

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
        self._run.define_metric("*", step_metric="grpo_step")

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        self._run.log({**step_scalars(values), "grpo_step": report.step})

    def evaluation(self, report: EvaluationReport) -> None:
        self._run.log(
            {
                f"grpo_eval_accuracy/{report.dataset}": report.accuracy,
                "grpo_step": report.step,
            }
        )

    def close(self) -> None:
        self._run.finish()


def step_scalars(values: Mapping[Series, float]) -> dict[str, float]:
    """Tags and values of what a step reports; a label becomes a folder: `grpo_clip_ratio/low`."""
    return {
        series.name if series.label is None else f"{series.name}/{series.label}": value
        for series, value in values.items()
        if series.name in _STEP_NAMES and math.isfinite(value)
    }


def _wandb_can_log_in() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    if os.environ.get("WANDB_MODE") in ("offline", "disabled", "dryrun"):
        return True
    try:
        return netrc.netrc().authenticators(_WANDB_HOST) is not None
    except (FileNotFoundError, netrc.NetrcParseError):
        return False
