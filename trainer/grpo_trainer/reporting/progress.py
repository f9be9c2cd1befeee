"""The progress of a run, as `/progress` serves it."""

import math
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from ..events import CheckpointReport, Outcome, StepReport, Summary, WorkerReport
from ..spec import (
    CheckpointStatus,
    CodeProtection,
    MetricsStatus,
    Progress,
    ProgressStatus,
    RunState,
    WorkersStatus,
)
from .metrics import Series
from .sink import Sink

_WINDOW_SECONDS = 300.0
_STATES = {
    Outcome.SUCCEEDED: RunState.SUCCEEDED,
    Outcome.STOPPED: RunState.STOPPED,
    Outcome.FAILED: RunState.FAILED,
}


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ProgressTracker(Sink):
    """Holds the current `Progress`; rates are over the last five minutes, at least one step."""

    def __init__(self, attempt: int, now: Callable[[], datetime] = _utc_now) -> None:
        self._now = now
        self._recent: deque[StepReport] = deque()
        self._current = Progress(attempt=attempt, updated=now())

    @property
    def current(self) -> Progress:
        return self._current

    def begin(self, step: int, total_steps: int) -> None:
        self._recent.clear()
        progress = ProgressStatus(
            step=step, total_steps=total_steps, percent=_percent(step, total_steps)
        )
        self._update(state=RunState.RUNNING, progress=progress)

    def workers(self, report: WorkerReport) -> None:
        self._update(
            workers=WorkersStatus(
                producers_ready=report.producers_ready,
                producers_desired=report.producers_desired,
                consumers_ready=report.consumers_ready,
                consumers_desired=report.consumers_desired,
            ),
            producers_wanted=report.producers_wanted,
        )

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        self._recent.append(report)
        while len(self._recent) > 1 and sum(r.seconds for r in self._recent) > _WINDOW_SECONDS:
            self._recent.popleft()
        seconds = sum(r.seconds for r in self._recent)
        recent = [r.statistics for r in self._recent]
        tokens = sum(s.prompt_tokens + s.response_tokens for s in recent)
        # Filtered groups end a run before its planned steps.
        done = report.share_done
        left = report.step * (1 / done - 1) if done else 0.0
        self._update(
            message=report.note,
            progress=ProgressStatus(
                step=report.step,
                total_steps=report.total_steps,
                episode=report.episode,
                percent=100 * done,
                eta_seconds=left * seconds / len(self._recent),
            ),
            metrics=MetricsStatus(
                reward=_finite(report.statistics.reward_mean),
                accuracy=_finite(report.statistics.accuracy_mean),
                samples_per_second=_rate(sum(s.samples for s in recent), seconds),
                tokens_per_second=_rate(tokens, seconds),
                buffer_depth=report.pipeline.buffer_depth,
                buffer_capacity=report.pipeline.buffer_capacity,
                staleness=report.staleness_mean,
                consumer_idle_ratio=_finite(report.consumer_idle_ratio),
            ),
        )

    def checkpoint(self, report: CheckpointReport) -> None:
        status = CheckpointStatus(step=report.step, path=report.path, time=self._now())
        self._update(checkpoint=status)

    def code_protection(self, found: CodeProtection | None) -> None:
        """What keeps programs of completions from files."""
        self._update(code_protection=found)

    def message(self, text: str) -> None:
        self._update(message=text)

    def draining(self) -> None:
        self._update(state=RunState.DRAINING)

    def finish(self, summary: Summary) -> None:
        progress = self._current.progress
        if summary.outcome is Outcome.SUCCEEDED:
            progress = progress.model_copy(update={"percent": 100.0, "eta_seconds": 0.0})
        self._update(state=_STATES[summary.outcome], message=summary.message, progress=progress)

    def _update(self, **changes: object) -> None:
        self._current = self._current.model_copy(update={**changes, "updated": self._now()})


def _percent(step: int, total_steps: int) -> float:
    return min(100.0, 100.0 * step / total_steps) if total_steps else 0.0


def _rate(amount: int, seconds: float) -> float | None:
    return amount / seconds if seconds > 0 else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
