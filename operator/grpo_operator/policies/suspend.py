"""Suspension: a checkpoint, then no pods. Once begun it is completed, even if revoked."""

from datetime import datetime

from grpo_trainer.spec import (
    ConditionStatus,
    ConditionType,
    GRPOJobStatus,
    Phase,
)

from ..model.conditions import Reason, attempt_started, find_condition, since
from ..model.decision import Decision, DeleteCluster, StopDriver, Transition, false, unknown
from ..model.observed import Observed
from .drain import POLL_SECONDS, drain, unsaved
from .progress import progress_fields


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
    began = since(status, ConditionType.SUSPENDED, ConditionStatus.UNKNOWN) or now
    actions = drain(observed, began, now)
    if actions is not None:
        changes = progress_fields(observed.progress)
        transition = Transition(observed, now, Phase.SUSPENDING, Reason.DRAINING, changes=changes)
        return transition.decision(*actions, requeue_after=POLL_SECONDS)
    return _release(observed, now)


def _release(observed: Observed, now: datetime) -> Decision:
    """Delete the pods.

    A driver that did not drain in time is stopped: their preStop hooks would wait for it once more.
    """
    status, cluster, run = observed.job.status, observed.cluster, observed.run
    loss = unsaved(observed) if attempt_started(status) else _recorded_loss(status)
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
    stop = (StopDriver(run.attempt),) if run is not None and run.active else ()
    return transition.decision(*stop, DeleteCluster(cluster.uid))


def _recorded_loss(status: GRPOJobStatus) -> str:
    training = find_condition(status, ConditionType.TRAINING)
    ended = training is not None and training.reason == Reason.SUSPENDED
    return training.message if training is not None and ended else ""


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
