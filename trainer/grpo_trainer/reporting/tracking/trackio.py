"""Trackio."""

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
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


class Trackio(Sink):
    """A run in Trackio's directory (`TRACKIO_DIR`) or in a Space; it writes in its own thread.

    Trackio knows a run by its name, so the name has the id in `trackio.id` behind the job's.
    """

    def __init__(self, job: GRPOJob, layout: RunPaths) -> None:
        os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
        if not layout.trackio_id.exists():
            layout.trackio_id.write_text(secrets.token_hex(4))
        spec = job.spec.tracking.trackio
        assert spec is not None
        # It prints how to open its dashboard, which the documentation says.
        with redirect_stdout(StringIO()):
            import trackio

            self._run: Any = trackio.init(
                project=job.spec.tracking.project,
                name=f"{job.metadata.name}-{layout.trackio_id.read_text()}",
                group=job.metadata.name,
                space_id=spec.space_id,
                config=hyperparameters(job),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
            )
        self._markdown: Any = trackio.Markdown

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        self._run.log(step_scalars(values), step=report.step)

    def evaluation(self, report: EvaluationReport) -> None:
        self._run.log(evaluation_scalars(report), step=report.step)

    def rollouts(self, step: int, samples: Sequence[LoggedSample]) -> None:
        self._run.log({COMPLETIONS: self._markdown(completions_text(samples))}, step=step)

    def close(self) -> None:
        with redirect_stdout(StringIO()):
            self._run.finish()
