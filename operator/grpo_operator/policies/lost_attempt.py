"""Attempts whose cluster or head is observed gone.

Only positive evidence counts: an object that is deleted, replaced or terminated. A head that is not
ready or does not respond may be well.
"""

from datetime import datetime

from grpo_trainer.spec import ConditionType, Phase

from ..model.conditions import Reason, attempt_started, find_condition
from ..model.decision import Decision, DeleteCluster, Transition, false, unknown
from ..model.observed import Observed, Pod, Role
from .retry import next_attempt

HEAD_GRACE = 60.0
"""Seconds that a terminated head may take to start again before its attempt counts as lost."""


def attempt_lost(observed: Observed, now: datetime) -> Decision | None:
    """Start over with new pods; an eviction or preemption is not counted as a failure."""
    cluster = observed.cluster
    if not attempt_started(observed.job.status):
        return None
    if cluster is not None and cluster.suspended and not cluster.deleting:
        return _preempted(observed, now)
    loss = _loss(observed, now)
    if loss is None:
        return None
    reason, text = loss
    evicted = eviction(observed) or _recorded_eviction(observed)
    if evicted is not None:
        reason, text = Reason.EVICTED, f"{text} ({evicted})"
    if cluster is None or cluster.deleting:
        return next_attempt(observed, now, reason, text)
    return next_attempt(observed, now, reason, text, DeleteCluster(cluster.uid))


def eviction(observed: Observed) -> str | None:
    """The pod of the attempt that Kubernetes evicts, if any."""
    found = (f"pod {p.name}: {p.disruption}" for p in observed.pods if p.disruption)
    return next(found, None)


def _recorded_eviction(observed: Observed) -> str | None:
    training = find_condition(observed.job.status, ConditionType.TRAINING)
    evicted = training is not None and training.reason == Reason.EVICTED
    return training.message if training is not None and evicted else None


def _loss(observed: Observed, now: datetime) -> tuple[Reason, str] | None:
    head = observed.head
    if observed.cluster is None or observed.cluster.deleting:
        return Reason.CLUSTER_LOST, "the RayCluster was deleted"
    if head is None:
        # An evicted head writes a checkpoint in its grace period.
        if any(_in_grace_period(pod, now) for pod in observed.pods):
            return None
        return Reason.HEAD_LOST, "the head pod was deleted"
    ended = f" (it terminated: {head.last_termination})" if head.last_termination else ""
    recorded = observed.job.status.head_pod_uid
    if recorded is not None and head.uid != recorded:
        return Reason.HEAD_LOST, f"head pod {head.name} replaced that of the attempt{ended}"
    unready = (now - head.ready_changed).total_seconds()
    if head.stopped and not head.ready and unready > HEAD_GRACE:
        why = f": {head.problem.message}" if head.problem else ""
        return Reason.HEAD_LOST, f"head pod {head.name} has stopped{ended}{why}"
    if head.ready and observed.ray_jobs is not None and observed.run is None:
        return Reason.HEAD_LOST, f"Ray on {head.name} was restarted without the attempt{ended}"
    return None


def _in_grace_period(pod: Pod, now: datetime) -> bool:
    return (
        pod.role is Role.HEAD and pod.deletion_deadline is not None and pod.deletion_deadline > now
    )


def _preempted(observed: Observed, now: datetime) -> Decision:
    text = "Kueue preempted the RayCluster"
    transition = Transition(
        observed,
        now,
        Phase.QUEUED,
        Reason.PREEMPTED,
        text,
        cluster_ready=unknown(Reason.QUEUED, text),
        training=false(Reason.PREEMPTED, text),
        changes={
            "attempt": observed.attempt + 1,
            "evictions": observed.job.status.evictions + 1,
        },
    )
    return transition.decision(requeue_after=0.0)
