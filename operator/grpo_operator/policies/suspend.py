"""Suspension: a checkpoint, then no pods. Once begun it is completed, even if revoked."""

from datetime import datetime

from grpo_trainer.spec import (
    ConditionStatus,
    ConditionType,
    ExitCode,
    GRPOJobStatus,
    Phase,
    RunState,
)

from ..model.conditions import Reason, attempt_started, find_condition, since
from ..model.decision import Decision, DeleteCluster, Drain, Transition, false, unknown
from ..model.observed import Observed
from .progress import progress_fields
from .retry import lost_steps

DRAIN_SECONDS = 300.0
"""Seconds that a driver may take to write its checkpoint."""
POLL_SECONDS = 2.0


def suspension(observed: Observed, now: datetime) -> Decision | None:
    """Drain the driver, delete the pods, then wait until `suspend` is false."""
    spec, status, cluster = observed.job.spec, observed.job.status, observed.cluster
    assert spec is not None
    if not spec.suspend and status.phase is not Phase.SUSPENDING:
        return None
    if cluster is None and not observed.pods:
        transition = Transition(
            observed,
            now,
            Phase.SUSPENDED,
            Reason.SUSPENDED,
            _recorded_loss(status),
            cluster_ready=unknown(Reason.SUSPENDED),
            training=false(Reason.SUSPENDED, _recorded_loss(status)),
        )
        return transition.decision(requeue_after=None if spec.suspend else 0.0)
    if status.phase is not Phase.SUSPENDING:
        # Written first: a driver that ends on request must not count as failed, even if the
        # suspension is revoked at the same time.
        return Transition(observed, now, Phase.SUSPENDING, Reason.DRAINING).decision(
            requeue_after=0.0
        )
    if _draining(observed, now):
        state = observed.progress.state if observed.progress is not None else None
        requested = state is not None and (state is RunState.DRAINING or state.is_end)
        reachable = observed.ray_jobs is not None
        changes = progress_fields(observed.progress)
        transition = Transition(observed, now, Phase.SUSPENDING, Reason.DRAINING, changes=changes)
        actions = (Drain(),) if reachable and not requested else ()
        return transition.decision(*actions, requeue_after=POLL_SECONDS)
    loss = _loss(observed) if attempt_started(status) else _recorded_loss(status)
    transition = Transition(
        observed,
        now,
        Phase.SUSPENDING,
        Reason.RELEASING_PODS,
        loss,
        cluster_ready=unknown(Reason.RELEASING_PODS),
        training=false(Reason.SUSPENDED, loss),
    )
    if cluster is None or cluster.deleting:
        return transition.decision()
    return transition.decision(DeleteCluster(cluster.uid))


def _loss(observed: Observed) -> str:
    """What is lost when the pods go; a driver that stopped on request wrote a checkpoint."""
    run = observed.run
    if run is not None and run.exit_code == ExitCode.STOPPED:
        return ""
    lost = lost_steps(observed.job.status).removeprefix("; ")
    return f"no checkpoint was written: {lost}" if lost else ""


def _recorded_loss(status: GRPOJobStatus) -> str:
    training = find_condition(status, ConditionType.TRAINING)
    ended = training is not None and training.reason == Reason.SUSPENDED
    return training.message if training is not None and ended else ""


def _draining(observed: Observed, now: datetime) -> bool:
    """Whether a driver may still write its checkpoint."""
    status = observed.job.status
    head, run = observed.head, observed.run
    alive = (
        head is not None and head.ready and (observed.ray_jobs is None or bool(run and run.active))
    )
    leaving = observed.cluster is None or observed.cluster.deleting or observed.cluster.suspended
    if not attempt_started(status) or not alive or leaving:
        return False
    began = since(status, ConditionType.SUSPENDED, ConditionStatus.UNKNOWN) or now
    return (now - began).total_seconds() < DRAIN_SECONDS


def resumption(observed: Observed, now: datetime) -> Decision | None:
    """A suspended job resumes as a new attempt, from its newest checkpoint."""
    status = observed.job.status
    if status.phase is not Phase.SUSPENDED:
        return None
    transition = Transition(
        observed,
        now,
        Phase.PENDING,
        Reason.RESUMED,
        cluster_ready=unknown(Reason.NO_CLUSTER),
        training=false(Reason.RESUMED),
        changes={"attempt": status.attempt + 1},
    )
    return transition.decision(requeue_after=0.0)
