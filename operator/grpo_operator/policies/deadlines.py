"""Deadlines: of the whole run, of its first start, and of a single step."""

from dataclasses import replace
from datetime import datetime, timedelta

from grpo_trainer.spec import ConditionStatus, ConditionType, GRPOJobStatus, Phase, RunState

from ..model.conditions import Reason, attempt_started, find_condition, since
from ..model.decision import (
    TERMINAL,
    Decision,
    DeleteCluster,
    DumpStacks,
    StopDriver,
    Transition,
    true,
)
from ..model.observed import Observed
from .drain import POLL_SECONDS, drain, unsaved
from .progress import progress_fields
from .retry import fail, next_attempt

_SUSPENSION = (Phase.SUSPENDING, Phase.SUSPENDED)


def _left(start: datetime | None, seconds: int | None, now: datetime) -> float | None:
    if start is None or seconds is None:
        return None
    return seconds - (now - start).total_seconds()


def run_deadline(observed: Observed, now: datetime) -> Decision | None:
    """`activeDeadlineSeconds`: the job fails, after a checkpoint. As in batch Job the time does not
    run while the job is queued or suspended, and starts again after."""
    assert observed.job.spec is not None
    limit = observed.job.spec.active_deadline_seconds
    status = observed.job.status
    left = _left(status.start_time, limit, now)
    if left is None or left > 0 or status.phase in _SUSPENSION:
        return None
    text = f"activeDeadlineSeconds ({limit}) exceeded"
    actions = drain(observed, now + timedelta(seconds=left), now)
    if actions is not None:
        text = f"{text}: the driver writes a checkpoint"
        transition = Transition(
            observed,
            now,
            status.phase,
            Reason.DRAINING,
            text,
            training=true(Reason.DRAINING, text),
            changes=progress_fields(observed.progress),
        )
        return transition.decision(*actions, requeue_after=POLL_SECONDS)
    unsaved_steps = unsaved(observed) if attempt_started(status) else ""
    text = f"{text}; {unsaved_steps}" if unsaved_steps else text
    run = observed.run
    stop = (StopDriver(run.attempt),) if run is not None and run.active else ()
    return fail(observed, now, Reason.DEADLINE_EXCEEDED, text, *stop)


def startup_deadline(observed: Observed, now: datetime, decided: Decision) -> Decision:
    """The decision, unless the pods of the first start are not ready in time: then the end.

    The time counts from when ClusterReady became False; it is Unknown while Kueue holds the pods. A
    restart in the middle of a run waits for capacity without a deadline.
    """
    spec = observed.job.spec
    assert spec is not None
    left = _startup_left(observed, decided.status, now)
    if left is None or left > 0:
        return decided
    text = f"not ready within startupDeadlineSeconds ({spec.startup_deadline_seconds})"
    cause = find_condition(decided.status, ConditionType.CLUSTER_READY)
    assert cause is not None
    message = f"{text}: {cause.reason}: {cause.message}"
    return fail(observed, now, Reason.STARTUP_DEADLINE_EXCEEDED, message)


def stall(observed: Observed, now: datetime) -> Decision | None:
    """The driver reports the same step for too long: dump the stacks, start over.

    Silence is no stall: `step_since` is set only while the driver responds.
    """
    status = observed.job.status
    field, limit = _step_limit(observed)
    left = _left(observed.step_since, limit, now)
    if not attempt_started(status) or observed.cluster is None or left is None or left > 0:
        return None
    text = f"no step after step {status.progress.step} within {field} ({limit})"
    actions = (DumpStacks(), StopDriver(observed.attempt), DeleteCluster(observed.cluster.uid))
    return next_attempt(observed, now, Reason.STALLED, text, *actions)


def wake_for_deadlines(observed: Observed, decision: Decision, now: datetime) -> Decision:
    """The decision, requeued no later than the next deadline."""
    left = seconds_to_next(observed, decision.status, now)
    if left is None:
        return decision
    after = left if decision.requeue_after is None else decision.requeue_after
    return replace(decision, requeue_after=max(0.0, min(left, after)))


def seconds_to_next(observed: Observed, status: GRPOJobStatus, now: datetime) -> float | None:
    """Seconds until a deadline may change the decision; None when none is running."""
    spec = observed.job.spec
    if spec is None or status.phase in TERMINAL:
        return None
    started = attempt_started(status)
    running = (
        _left(status.start_time, spec.active_deadline_seconds, now),
        None if started else _startup_left(observed, status, now),
        _left(observed.step_since, _step_limit(observed)[1], now) if started else None,
    )
    # A deadline that has passed without effect does not apply in this phase.
    return min((left for left in running if left is not None and left > 0), default=None)


def _step_limit(observed: Observed) -> tuple[str, int]:
    """Name and value of the deadline of the present step. A driver's first step takes longer."""
    spec, progress = observed.job.spec, observed.progress
    assert spec is not None
    starting = progress is not None and progress.state is RunState.STARTING
    if starting or (progress is not None and progress.progress.step == 0):
        return "firstStepTimeoutSeconds", spec.first_step_timeout_seconds
    return "stallTimeoutSeconds", spec.stall_timeout_seconds


def _startup_left(observed: Observed, status: GRPOJobStatus, now: datetime) -> float | None:
    if status.phase in _SUSPENSION or not observed.first_start:
        return None
    assert observed.job.spec is not None
    started = since(status, ConditionType.CLUSTER_READY, ConditionStatus.FALSE)
    return _left(started, observed.job.spec.startup_deadline_seconds, now)
