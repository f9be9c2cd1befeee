"""Attempts that end without their driver saying so: the cluster or its head is gone."""

from datetime import datetime

from grpo_trainer.spec import ConditionStatus, ConditionType, Phase

from ..model.conditions import Reason, since
from ..model.decision import Decision, DeleteCluster, Draft, no, unknown
from ..model.observed import Observed, Role
from .retry import next_attempt

HEAD_GRACE = 60.0
"""Seconds that a head may be unready before its run counts as lost."""
CLOCK_SKEW = 5.0
"""Seconds that the clocks of operator and API server may differ; no head is ready in less."""


def attempt_lost(seen: Observed, now: datetime) -> Decision | None:
    """Count a failure and clear away what is left of the cluster; Kueue's preemption is none."""
    status, cluster = seen.job.status, seen.cluster
    began = since(status, ConditionType.TRAINING, ConditionStatus.TRUE)
    if began is None:
        return None
    if cluster is not None and cluster.suspended and not cluster.deleting:
        return _preempted(seen, now)
    loss = _loss(seen, began, now)
    if loss is None:
        return None
    if cluster is None or cluster.deleting:
        return next_attempt(seen, now, *loss)
    return next_attempt(seen, now, *loss, DeleteCluster(cluster.uid))


def _loss(seen: Observed, began: datetime, now: datetime) -> tuple[Reason, str] | None:
    head = seen.head
    if seen.cluster is None or seen.cluster.deleting:
        return Reason.CLUSTER_LOST, "the RayCluster is gone"
    if head is None:
        # One that is evicted writes a checkpoint in its grace period.
        if any(
            p.deletion_deadline and p.deletion_deadline > now
            for p in seen.pods
            if p.role is Role.HEAD
        ):
            return None
        return Reason.HEAD_LOST, "the head pod is gone"
    died = f" (it ended as {head.last_termination})" if head.last_termination else ""
    if (head.created - began).total_seconds() > CLOCK_SKEW:
        return Reason.HEAD_LOST, f"head pod {head.name} replaced the one that ran it{died}"
    if not head.ready and (now - head.ready_changed).total_seconds() > HEAD_GRACE:
        why = f": {head.problem.message}" if head.problem else ""
        return Reason.HEAD_LOST, f"head pod {head.name} is not ready{died}{why}"
    if head.ready and seen.ray_jobs is not None and seen.run is None:
        return Reason.HEAD_LOST, f"Ray on {head.name} has started anew and forgotten it{died}"
    return None


def _preempted(seen: Observed, now: datetime) -> Decision:
    text = "Kueue took the pods back"
    draft = Draft(
        seen,
        now,
        Phase.QUEUED,
        Reason.PREEMPTED,
        text,
        cluster_ready=unknown(Reason.QUEUED, text),
        training=no(Reason.PREEMPTED, text),
        changes={"attempt": seen.attempt + 1},
    )
    return draft.decision(requeue_after=0.0)
