"""Deadlines: of the whole run, of its start, and of a single step."""

from datetime import datetime

from grpo_trainer.spec import ConditionStatus, ConditionType, GRPOJobStatus, Phase

from ..model.conditions import Reason, since
from ..model.decision import TERMINAL, Decision, DeleteCluster, DumpStacks, StopDriver, yes
from ..model.observed import Observed
from .retry import end, next_attempt


def _left(start: datetime | None, seconds: int | None, now: datetime) -> float | None:
    if start is None or seconds is None:
        return None
    return seconds - (now - start).total_seconds()


def run_deadline(seen: Observed, now: datetime) -> Decision | None:
    """`activeDeadlineSeconds` from the first start: the job fails, suspended or not."""
    assert seen.job.spec is not None
    limit = seen.job.spec.active_deadline_seconds
    left = _left(seen.job.status.start_time, limit, now)
    if left is None or left > 0:
        return None
    text = f"activeDeadlineSeconds ({limit}) passed since the first start"
    return end(seen, now, Reason.DEADLINE_EXCEEDED, text)


def startup_deadline(seen: Observed, now: datetime, decided: Decision) -> Decision:
    """The decision, unless pods have not been ready for `startupDeadlineSeconds`: then the end.

    The time counts from when ClusterReady became False; it is Unknown while Kueue holds the pods.
    """
    spec = seen.job.spec
    assert spec is not None
    left = _startup_left(seen, decided.status, now)
    if left is None or left > 0:
        return decided
    text = f"not ready within startupDeadlineSeconds ({spec.startup_deadline_seconds})"
    cause = next(c for c in decided.status.conditions if c.type is ConditionType.CLUSTER_READY)
    message = f"{text}: {cause.reason}: {cause.message}"
    return end(seen, now, Reason.STARTUP_DEADLINE_EXCEEDED, message)


def stall(seen: Observed, now: datetime) -> Decision | None:
    """No step for `stallTimeoutSeconds`: keep the stacks, then start over with new pods."""
    spec, status = seen.job.spec, seen.job.status
    assert spec is not None
    limit = spec.stall_timeout_seconds
    left = _left(seen.step_since, limit, now)
    training = since(status, ConditionType.TRAINING, ConditionStatus.TRUE)
    if training is None or seen.cluster is None or left is None or left > 0:
        return None
    text = f"no step after step {status.progress.step} within stallTimeoutSeconds ({limit})"
    actions = (DumpStacks(), StopDriver(seen.attempt), DeleteCluster(seen.cluster.uid))
    return next_attempt(
        seen, now, Reason.STALLED, text, *actions, stalled=yes(Reason.STALLED, text)
    )


def seconds_to_next(seen: Observed, status: GRPOJobStatus, now: datetime) -> float | None:
    """Seconds until a deadline may change the decision; None when none is running."""
    spec = seen.job.spec
    if spec is None or status.phase in TERMINAL:
        return None
    training = since(status, ConditionType.TRAINING, ConditionStatus.TRUE)
    running = (
        _left(status.start_time, spec.active_deadline_seconds, now),
        _startup_left(seen, status, now) if training is None else None,
        _left(seen.step_since, spec.stall_timeout_seconds, now) if training else None,
    )
    # One that has passed without effect does not apply where the job is now.
    return min((left for left in running if left is not None and left > 0), default=None)


def _startup_left(seen: Observed, status: GRPOJobStatus, now: datetime) -> float | None:
    if status.phase in (Phase.SUSPENDING, Phase.SUSPENDED):
        return None
    assert seen.job.spec is not None
    started = since(status, ConditionType.CLUSTER_READY, ConditionStatus.FALSE)
    return _left(started, seen.job.spec.startup_deadline_seconds, now)
