"""What every place that reports go to can be told; each overrides what it cares for."""

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
    """A receiver that ignores everything."""

    def begin(self, step: int, total_steps: int) -> None:
        """Training goes on after `step` steps; whatever was reported of later ones is void."""

    def workers(self, report: WorkerReport) -> None: ...

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        """A step is done; `values` are those of all metrics after it."""

    def evaluation(self, report: EvaluationReport) -> None: ...

    def rollouts(self, step: int, samples: Sequence[LoggedSample]) -> None: ...

    def checkpoint(self, report: CheckpointReport) -> None: ...

    def message(self, text: str) -> None: ...

    def restart(self, role: str) -> None: ...

    def draining(self) -> None: ...

    def finish(self, summary: Summary) -> None: ...

    def close(self) -> None:
        """Let go of files and threads; called once, after `finish` where there is one."""
