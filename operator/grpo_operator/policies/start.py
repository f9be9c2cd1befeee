"""From a job without a cluster to a submitted attempt."""

from dataclasses import replace
from datetime import datetime

from grpo_trainer.spec import ConditionStatus, ConditionType, Phase

from ..model.conditions import Reason, find_condition
from ..model.decision import (
    CreateCluster,
    Decision,
    State,
    StopDriver,
    Submit,
    Transition,
    false,
    true,
)
from ..model.observed import Observed
from .deadlines import startup_deadline
from .driver import POLL_SECONDS
from .readiness import cluster_created, cluster_ready, seconds_to_next_check
from .retry import seconds_to_wait


def old_pods_leaving(observed: Observed, now: datetime) -> Decision | None:
    """No pod of one cluster coexists with one of the next: both would write to the same volume.

    On a lost node pods stay Terminating until it is back or deleted; they are waited for.
    """
    gone = observed.cluster is None or observed.cluster.deleting
    if not gone or (observed.cluster is None and not observed.pods):
        return None
    ready = cluster_ready(observed, now)
    phase = observed.job.status.phase
    transition = Transition(observed, now, phase, ready.reason, ready.message, cluster_ready=ready)
    return transition.decision()


def backing_off(observed: Observed, now: datetime) -> Decision | None:
    """A failed attempt delays the next, longer with each failure."""
    wait = seconds_to_wait(observed, now)
    if wait <= 0:
        return None
    failed = find_condition(observed.job.status, ConditionType.TRAINING)
    assert failed is not None
    transition = Transition(observed, now, Phase.RETRYING, failed.reason, failed.message)
    return transition.decision(requeue_after=wait)


def no_cluster(observed: Observed, now: datetime) -> Decision | None:
    """Create everything. What the API server refuses is shown and retried."""
    if observed.cluster is not None:
        return None
    spec = observed.job.spec
    assert spec is not None
    refused = _refused(observed, now)
    transition = Transition(
        observed,
        now,
        Phase.QUEUED if spec.queue_name else Phase.STARTING,
        refused.reason if refused else Reason.CREATING,
        refused.message if refused else "",
        cluster_ready=refused or cluster_created(observed),
        training=false(Reason.CREATING),
        changes={"attempt": observed.attempt},
    )
    return startup_deadline(observed, now, transition.decision(CreateCluster()))


def _refused(observed: Observed, now: datetime) -> State | None:
    """Why the cluster could not be created: just now, or at the last attempt to create it.

    Only refusals have reasons that are not the operator's own.
    """
    if observed.problem is not None:
        return cluster_ready(observed, now)
    last = find_condition(observed.job.status, ConditionType.CLUSTER_READY)
    if last is None or last.status is not ConditionStatus.FALSE or last.reason in set(Reason):
        return None
    return false(last.reason, last.message)


def queued(observed: Observed, now: datetime) -> Decision | None:
    """Kueue has not admitted the RayCluster."""
    if observed.cluster is None or not observed.cluster.suspended:
        return None
    ready = cluster_ready(observed, now)
    transition = Transition(
        observed, now, Phase.QUEUED, ready.reason, ready.message, cluster_ready=ready
    )
    return transition.decision()


def pods_not_ready(observed: Observed, now: datetime) -> Decision | None:
    """Report which pod is missing and why, until the deadline."""
    ready = cluster_ready(observed, now)
    if ready.value == "True":
        return None
    wait = seconds_to_next_check(observed, now)
    transition = Transition(
        observed, now, Phase.STARTING, ready.reason, ready.message, cluster_ready=ready
    )
    return startup_deadline(observed, now, transition.decision(requeue_after=wait))


def ready_to_submit(observed: Observed, now: datetime) -> Decision | None:
    """Start the driver, once no earlier one runs."""
    attempt = observed.attempt
    text = f"attempt {attempt}"
    transition = Transition(observed, now, Phase.STARTING, Reason.SUBMITTED, text)
    if observed.ray_jobs is None:
        ready = false(Reason.HEAD_NOT_ANSWERING, "Ray's dashboard on the head does not respond")
        transition = replace(
            transition, reason=ready.reason, message=ready.message, cluster_ready=ready
        )
        decision = transition.decision(requeue_after=POLL_SECONDS)
        return startup_deadline(observed, now, decision)
    transition = replace(transition, cluster_ready=cluster_ready(observed, now))
    others = [job.attempt for job in observed.ray_jobs if job.active and job.attempt != attempt]
    if others:
        transition = replace(transition, reason=Reason.STOPPING_OLD_ATTEMPT)
        return transition.decision(*map(StopDriver, others), requeue_after=POLL_SECONDS)
    head = observed.head
    assert head is not None
    transition = replace(
        transition,
        training=true(Reason.SUBMITTED, text),
        changes={"head_pod_uid": head.uid},
    )
    return transition.decision(Submit(attempt), requeue_after=POLL_SECONDS)
