"""Conditions and their reasons.

A condition's transition time changes only with its status, so it records when something began.
"""

from datetime import datetime
from enum import StrEnum

from grpo_trainer.spec import Condition, ConditionStatus, ConditionType, GRPOJobStatus


class Reason(StrEnum):
    """Reasons of conditions and Events."""

    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"
    """This version of the operator cannot read the spec; the message lists every fault."""
    NO_CLUSTER = "NoCluster"
    CREATING = "Creating"
    QUEUED = "Queued"
    """Kueue has not admitted the RayCluster yet."""
    PODS_PENDING = "PodsPending"
    PODS_READY = "PodsReady"
    """The head, all consumers and producers.minAvailable producers are ready."""
    OLD_PODS_LEAVING = "OldPodsLeaving"
    """Pods of the previous cluster remain; the next cluster waits for their end."""
    HEAD_NOT_ANSWERING = "HeadNotAnswering"
    """The head does not respond; nothing is concluded from that."""
    STOPPING_OLD_ATTEMPT = "StoppingOldAttempt"
    SUBMITTED = "Submitted"
    RUNNING = "Running"
    DRIVER_FAILED = "DriverFailed"
    """The driver ended with an exit code that is retryable."""
    BAD_INPUT = "BadInput"
    """The driver found a fault of spec or data; a retry would fail in the same way."""
    HEAD_LOST = "HeadLost"
    """The head's pod or container was replaced or terminated, and the attempt with it."""
    CLUSTER_LOST = "ClusterLost"
    PREEMPTED = "Preempted"
    """Kueue preempted the RayCluster; not counted as a failure."""
    EVICTED = "Evicted"
    """Kubernetes evicted a pod of the attempt; not counted as a failure."""
    DRAINED = "Drained"
    """The driver stopped with a checkpoint as one of its pods was deleted; not counted as a
    failure."""
    STALLED = "Stalled"
    """The driver reported the same step for too long."""
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    STARTUP_DEADLINE_EXCEEDED = "StartupDeadlineExceeded"
    DRAINING = "Draining"
    """The driver writes a checkpoint before its pods are deleted."""
    RELEASING_PODS = "ReleasingPods"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    SUCCEEDED = "Succeeded"
    LANDLOCK = "Landlock"
    NAMESPACES = "Namespaces"
    UNCONFINED = "Unconfined"
    """Programs of completions run without file protection, as `allowUnconfined` permits."""
    UNKNOWN = "Unknown"
    """Whoever reported the problem gave no reason."""


EVICTIONS = (Reason.EVICTED, Reason.DRAINED, Reason.PREEMPTED)
"""Ends of attempts that are no failures: nodes or quota were needed for others."""


USUAL_REASONS = frozenset({Reason.CREATING, Reason.PODS_PENDING})
"""Reasons of ClusterReady that every start has."""


def find_condition(status: GRPOJobStatus, kind: ConditionType) -> Condition | None:
    """The condition of one type."""
    return next((c for c in status.conditions if c.type is kind), None)


def since(status: GRPOJobStatus, kind: ConditionType, value: ConditionStatus) -> datetime | None:
    """When a condition took the value, or None when it does not have it now."""
    condition = find_condition(status, kind)
    return condition.last_transition_time if condition and condition.status is value else None


def attempt_started(status: GRPOJobStatus) -> bool:
    """Whether the current attempt was submitted and has not ended.

    Training is Unknown while the head does not respond.
    """
    training = find_condition(status, ConditionType.TRAINING)
    return training is not None and training.status is not ConditionStatus.FALSE


def set_condition(status: GRPOJobStatus, new: Condition, now: datetime) -> GRPOJobStatus:
    """The status with a condition set; its transition time moves only when its status changes."""
    old = find_condition(status, new.type)
    unchanged = old is not None and old.status is new.status
    time = old.last_transition_time if old is not None and unchanged else now
    new = new.model_copy(update={"last_transition_time": time})
    if old is None:
        conditions = (*status.conditions, new)
    else:
        conditions = tuple(new if c.type is new.type else c for c in status.conditions)
    return status.model_copy(update={"conditions": conditions})
