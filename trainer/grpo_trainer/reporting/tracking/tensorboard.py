"""TensorBoard."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...events import EvaluationReport, LoggedSample, StepReport
from ...spec import GRPOJob
from ..metrics import Series
from ..paths import RunPaths
from ..sink import Sink
from .scalars import (
    COMPLETIONS,
    completions_text,
    evaluation_scalars,
    hyperparameters,
    step_scalars,
)

QUEUED_EVENTS = 1000
FLUSH_SECONDS = 10


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
        # Its thread writes, so that the driver's loop does not wait for the volume.
        self._writer = SummaryWriter(
            str(self._layout.tensorboard),
            purge_step=step + 1,
            max_queue=QUEUED_EVENTS,
            flush_secs=FLUSH_SECONDS,
        )
        # SummaryWriter.add_hparams would write them to a directory of their own.
        for summary in hparams(self._parameters, {"rollout/reward_mean": 0.0}):
            self._writer.file_writer.add_summary(summary)

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        for tag, value in step_scalars(values).items():
            self._writer.add_scalar(tag, value, report.step)

    def evaluation(self, report: EvaluationReport) -> None:
        for tag, value in evaluation_scalars(report).items():
            self._writer.add_scalar(tag, value, report.step)
        self._writer.flush()

    def rollouts(self, step: int, samples: Sequence[LoggedSample]) -> None:
        self._writer.add_text(COMPLETIONS, completions_text(samples), step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
