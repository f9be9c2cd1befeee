"""Weights & Biases."""

import netrc
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from ...events import EvaluationReport, LoggedSample, StepReport
from ...spec import GRPOJob
from ..metrics import Series
from ..paths import RunPaths
from ..sink import Sink
from .scalars import (
    COMPLETIONS,
    best_and_worst,
    encodable,
    evaluation_scalars,
    hyperparameters,
    step_scalars,
)

_HOST = "api.wandb.ai"
_STEP = "train/step"
_COLUMNS = ("step", "reward", "advantage", "reference answer", "prompt", "completion")


class Wandb(Sink):
    """The step is a metric, so that repeated steps can be logged again."""

    def __init__(self, job: GRPOJob, layout: RunPaths) -> None:
        import wandb

        spec = job.spec.tracking.wandb
        assert spec is not None
        if not layout.wandb_id.exists():
            layout.wandb_id.write_text(secrets.token_hex(8))
        self._table: Any = wandb.Table
        self._run: Any = wandb.init(
            project=job.spec.tracking.project,
            entity=spec.entity,
            name=job.metadata.name,
            id=layout.wandb_id.read_text(),
            resume="allow",
            dir=str(layout.root),
            config=hyperparameters(job),
            # Its copy of the terminal would hold every refresh of the panel.
            settings=wandb.Settings(console="off"),
        )
        self._run.define_metric("*", step_metric=_STEP)

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        self._run.log(step_scalars(values))

    def evaluation(self, report: EvaluationReport) -> None:
        self._run.log({**evaluation_scalars(report), _STEP: report.step})

    def rollouts(self, step: int, samples: Sequence[LoggedSample]) -> None:
        rows = [
            [step, s.reward, s.advantage, s.answer, encodable(s.prompt), encodable(s.completion)]
            for s in best_and_worst(samples)
        ]
        self._run.log({COMPLETIONS: self._table(columns=list(_COLUMNS), data=rows), _STEP: step})

    def close(self) -> None:
        self._run.finish()


def can_log_in() -> bool:
    """Whether there is a key, or none is needed."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    if os.environ.get("WANDB_MODE") in ("offline", "disabled", "dryrun"):
        return True
    try:
        return netrc.netrc().authenticators(_HOST) is not None
    except (FileNotFoundError, netrc.NetrcParseError):
        return False
