"""Suspension: a checkpoint, then no pods. Once begun it goes through, even if revoked meanwhile."""

from datetime import datetime

from grpo_trainer.spec import ConditionStatus, ConditionType, Phase, RunState

from ..model.conditions import Reason, since
from ..model.decision import Decision, DeleteCluster, Draft, Drain, no, unknown
from ..model.observed import Observed
from .progress import progress_fields

DRAIN_SECONDS = 300.0
"""How long a driver may take to write its checkpoint."""
POLL_SECONDS = 2.0


def suspension(seen: Observed, now: datetime) -> Decision | None:
    """Drain the driver, free the pods, rest."""
    spec, status, cluster = seen.job.spec, seen.job.status, seen.cluster
    assert spec is not None
    if not spec.suspend and status.phase is not Phase.SUSPENDING:
        return None
    if cluster is None and not seen.pods:
        draft = Draft(
            seen,
            now,
            Phase.SUSPENDED,
            Reason.SUSPENDED,
            cluster_ready=unknown(Reason.SUSPENDED),
            training=no(Reason.SUSPENDED),
        )
        return draft.decision(requeue_after=None if spec.suspend else 0.0)
    if status.phase is not Phase.SUSPENDING:
        # Written first: a driver that ends because it was asked to must not count as failed, even
        # if the suspension is revoked in the same moment.
        return Draft(seen, now, Phase.SUSPENDING, Reason.DRAINING).decision(requeue_after=0.0)
    if _draining(seen, now):
        said = seen.progress.state if seen.progress is not None else None
        driver_knows = said is not None and (said is RunState.DRAINING or said.is_end)
        reachable = seen.ray_jobs is not None
        changes = progress_fields(seen.progress)
        draft = Draft(seen, now, Phase.SUSPENDING, Reason.DRAINING, changes=changes)
        actions = (Drain(),) if reachable and not driver_knows else ()
        return draft.decision(*actions, requeue_after=POLL_SECONDS)
    draft = Draft(
        seen,
        now,
        Phase.SUSPENDING,
        Reason.RELEASING_PODS,
        cluster_ready=unknown(Reason.RELEASING_PODS),
        training=no(Reason.SUSPENDED),
    )
    if cluster is None or cluster.deleting:
        return draft.decision()
    return draft.decision(DeleteCluster(cluster.uid))


def _draining(seen: Observed, now: datetime) -> bool:
    """Whether a driver may still be at its checkpoint."""
    status = seen.job.status
    training = since(status, ConditionType.TRAINING, ConditionStatus.TRUE)
    head, run = seen.head, seen.run
    alive = head is not None and head.ready and (seen.ray_jobs is None or bool(run and run.active))
    leaving = seen.cluster is None or seen.cluster.deleting or seen.cluster.suspended
    if training is None or not alive or leaving:
        return False
    began = since(status, ConditionType.SUSPENDED, ConditionStatus.UNKNOWN) or now
    return (now - began).total_seconds() < DRAIN_SECONDS


def resumption(seen: Observed, now: datetime) -> Decision | None:
    """A rested job goes on: as a new attempt, from its newest checkpoint."""
    status = seen.job.status
    if status.phase is not Phase.SUSPENDED:
        return None
    draft = Draft(
        seen,
        now,
        Phase.PENDING,
        Reason.RESUMED,
        cluster_ready=unknown(Reason.NO_CLUSTER),
        training=no(Reason.RESUMED),
        changes={"attempt": status.attempt + 1},
    )
    return draft.decision(requeue_after=0.0)
