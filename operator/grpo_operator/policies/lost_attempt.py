"""Attempts whose cluster or head is observed gone.

Only positive evidence counts: an object that is deleted, replaced or terminated. A head that is not
ready or does not respond may be well.
"""

from datetime import datetime

from grpo_trainer.spec import ConditionType, Phase

from ..model.conditions import Reason, attempt_started, find_condition
from ..model.decision import Decision, DeleteCluster, Transition, false, true, unknown
from ..model.observed import Observed, Role
from .drain import POLL_SECONDS, unsaved
from .progress import progress_fields
from .retry import next_attempt

HEAD_GRACE = 60.0
"""Seconds that a terminated head may take to start again before its attempt counts as lost."""


def attempt_lost(observed: Observed, now: datetime) -> Decision | None:
    """Start over with new pods; an eviction or preemption is not counted as a failure."""
    cluster = observed.cluster
    if not attempt_started(observed.job.status):
        return None
    if is_preempted(observed):
        waiting = observed.draining_head(now) is not None or observed.head is not None
        return _draining(observed, now) if waiting else preempted(observed, now)
    loss = _loss(observed, now)
    if loss is None:
        return None
    reason, text = loss
    evicted = eviction(observed) or recorded_eviction(observed)
    if evicted is not None:
        reason, text = Reason.EVICTED, f"{text} ({evicted})"
    if cluster is None or cluster.deleting:
        return next_attempt(observed, now, reason, text)
    return next_attempt(observed, now, reason, text, DeleteCluster(cluster.uid))


def eviction(observed: Observed) -> str | None:
    """The pod of the attempt that Kubernetes evicts, if any."""
    found = (f"pod {p.name}: {p.disruption}" for p in observed.own_pods if p.disruption)
    return next(found, None)


def leaving(observed: Observed) -> str | None:
    """The pod that is being deleted of those without which there is no step, if any."""
    pods = (p for p in observed.own_pods if p.deleting and p.role is not Role.PRODUCER)
    return next((f"pod {pod.name} is being deleted" for pod in pods), None)


def recorded_eviction(observed: Observed) -> str | None:
    """An eviction or deletion that was observed while its pod existed."""
    training = find_condition(observed.job.status, ConditionType.TRAINING)
    reasons = (Reason.EVICTED, Reason.DRAINING)
    evicted = training is not None and training.reason in reasons
    return training.message if training is not None and evicted else None


def _loss(observed: Observed, now: datetime) -> tuple[Reason, str] | None:
    head = observed.head
    if observed.cluster is None or observed.cluster.deleting:
        return Reason.CLUSTER_LOST, "the RayCluster was deleted"
    if head is None:
        # An evicted head writes a checkpoint in its grace period.
        if observed.draining_head(now) is not None:
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


def is_preempted(observed: Observed) -> bool:
    """Whether Kueue has suspended the RayCluster of an attempt."""
    cluster = observed.cluster
    started = attempt_started(observed.job.status)
    return started and cluster is not None and cluster.suspended and not cluster.deleting


def preempted(observed: Observed, now: datetime) -> Decision:
    """The next attempt waits in the queue; the driver has ended, or its pod is gone."""
    lost = unsaved(observed)
    loss = f"; {lost}" if lost else ""
    text = f"Kueue preempted the RayCluster{loss}"
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


def _draining(observed: Observed, now: datetime) -> Decision:
    """The preStop hooks of the pods have asked the driver for a checkpoint."""
    text = "Kueue preempts the RayCluster: the driver writes a checkpoint"
    transition = Transition(
        observed,
        now,
        observed.job.status.phase,
        Reason.DRAINING,
        text,
        cluster_ready=unknown(Reason.QUEUED, text),
        training=true(Reason.DRAINING, text),
        changes=progress_fields(observed.progress),
    )
    return transition.decision(requeue_after=POLL_SECONDS)
