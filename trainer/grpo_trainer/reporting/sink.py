"""The interface of everything that receives reports; a sink overrides what it needs."""

from collections.abc import Mapping, Sequence

from ..events import (
    CheckpointReport,
    EvaluationReport,
    LoggedSample,
    StepReport,
    Summary,
    WorkerReport,
)
from .metrics import Series


class Sink:
    """A receiver that ignores all reports."""

    def begin(self, step: int, total_steps: int) -> None:
        """Training continues after `step` steps; reports of later steps are void."""

    def workers(self, report: WorkerReport) -> None: ...

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        """A step ended; `values` are those of all metrics after it."""

    def evaluation(self, report: EvaluationReport) -> None: ...

    def rollouts(self, step: int, samples: Sequence[LoggedSample]) -> None: ...

    def checkpoint(self, report: CheckpointReport) -> None: ...

    def message(self, text: str) -> None: ...

    def restart(self, role: str) -> None: ...

    def draining(self) -> None: ...

    def finish(self, summary: Summary) -> None: ...

    def close(self) -> None:
        """Release files and threads; called once, after `finish` if that is called."""
