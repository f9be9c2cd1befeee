"""The time of each phase of the loop, and the totals of a run."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from grpo_trainer.events import EvaluationReport, Outcome, StepReport, Summary


class PhaseName(StrEnum):
    """The phases of the training loop, in order."""

    TAKE = "take"
    TRAIN = "train"
    PUBLISH = "publish"
    EVALUATE = "evaluate"
    CHECKPOINT = "checkpoint"
    REPORT = "report"


class PhaseClock:
    """Seconds per phase since the last step's end."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._since = time.monotonic()

    @contextmanager
    def phase(self, name: PhaseName) -> Iterator[None]:
        """Time the block as part of a phase."""
        began = time.monotonic()
        try:
            yield
        finally:
            spent = time.monotonic() - began
            self._seconds[name] = self._seconds.get(name, 0.0) + spent

    def lap(self) -> tuple[float, dict[str, float]]:
        """Wall seconds and seconds per phase since the last lap."""
        now = time.monotonic()
        wall, seconds = now - self._since, self._seconds
        self._since, self._seconds = now, {}
        return wall, {name: seconds.get(name, 0.0) for name in PhaseName}


@dataclass(slots=True)
class Ledger:
    """Totals of a run for its summary; kept across restarts in the checkpoint."""

    samples: int = 0
    scored_samples: int = 0
    scoring_errors: dict[str, int] = field(default_factory=dict)
    train_seconds: float = 0.0
    """Wall time of all steps."""
    wait_seconds: float = 0.0
    consumer_seconds: float = 0.0
    producer_seconds: float = 0.0
    """Mean of the producers' busy seconds."""
    first_reward: float | None = None
    last_reward: float | None = None
    first_accuracy: dict[str, float] = field(default_factory=dict)
    last_accuracy: dict[str, float] = field(default_factory=dict)
    evaluated: bool = False
    updates: int = 0
    """Steps that changed the weights."""
    skipped_steps: int = 0
    """Steps whose gradients were not finite."""

    def add_step(self, report: StepReport, consumer_seconds: float) -> None:
        """Count one optimizer step."""
        self.samples += report.statistics.samples
        self.scored_samples += report.statistics.scored_samples
        self.scoring_errors = dict(report.pipeline.scoring_errors)
        self.train_seconds += report.seconds
        self.wait_seconds += report.consumer_idle_ratio * report.seconds
        self.consumer_seconds += consumer_seconds
        if self.first_reward is None:
            self.first_reward = report.statistics.reward_mean
        self.last_reward = report.statistics.reward_mean
        if not self.evaluated:
            self.first_accuracy.setdefault("train", report.statistics.accuracy_mean)
            self.last_accuracy["train"] = report.statistics.accuracy_mean

    def add_evaluation(self, report: EvaluationReport) -> None:
        """Count one evaluation set; from then on evaluations replace rollouts as the accuracy."""
        if not self.evaluated:
            self.evaluated, self.first_accuracy, self.last_accuracy = True, {}, {}
        self.first_accuracy.setdefault(report.dataset, report.accuracy)
        self.last_accuracy[report.dataset] = report.accuracy

    def summary(self, outcome: Outcome, **rest: Any) -> Summary:
        """The run so far; `rest` are the fields that are not totals."""
        seconds = self.train_seconds
        busiest = max(self.consumer_seconds, self.producer_seconds)
        return Summary(
            outcome=outcome,
            first_accuracy=dict(self.first_accuracy),
            last_accuracy=dict(self.last_accuracy),
            first_reward=self.first_reward,
            last_reward=self.last_reward,
            samples=self.samples,
            scored_samples=self.scored_samples,
            scoring_errors=dict(self.scoring_errors),
            train_seconds=seconds,
            samples_per_second=self.samples / seconds if seconds else 0.0,
            efficiency=min(1.0, busiest / seconds) if seconds else 0.0,
            consumer_idle_ratio=self.wait_seconds / seconds if seconds else 0.0,
            **rest,
        )
