"""Conditions and their reasons. A condition's transition time changes only with its status, and is
the operator's memory of when something began."""

from datetime import datetime
from enum import StrEnum

from grpo_trainer.spec import Condition, ConditionStatus, ConditionType, GRPOJobStatus


class Reason(StrEnum):
    """Why a job is where it is: reasons of its conditions and Events."""

    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"
    """The manifest does not fit this version of the operator; the message lists every fault."""
    NO_CLUSTER = "NoCluster"
    CREATING = "Creating"
    QUEUED = "Queued"
    """Kueue has not admitted the RayCluster yet."""
    PODS_PENDING = "PodsPending"
    PODS_READY = "PodsReady"
    """The head, all consumers and producers.minAvailable producers are ready."""
    OLD_PODS_LEAVING = "OldPodsLeaving"
    """Pods of the previous cluster are still there; the next waits for them."""
    HEAD_NOT_ANSWERING = "HeadNotAnswering"
    STOPPING_OLD_ATTEMPT = "StoppingOldAttempt"
    SUBMITTED = "Submitted"
    RUNNING = "Running"
    DRIVER_FAILED = "DriverFailed"
    """The driver ended with an exit code that a retry may mend."""
    BAD_INPUT = "BadInput"
    """The driver found a fault of spec or data that no retry mends."""
    HEAD_LOST = "HeadLost"
    """The head's pod or container was replaced, and the run with it."""
    CLUSTER_LOST = "ClusterLost"
    PREEMPTED = "Preempted"
    """Kueue took the pods back; this is no failure."""
    STALLED = "Stalled"
    BACKING_OFF = "BackingOff"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    STARTUP_DEADLINE_EXCEEDED = "StartupDeadlineExceeded"
    DRAINING = "Draining"
    """The driver writes a checkpoint before its pods go."""
    RELEASING_PODS = "ReleasingPods"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    SUCCEEDED = "Succeeded"
    ADVANCING = "Advancing"


USUAL_REASONS = frozenset({Reason.CREATING, Reason.PODS_PENDING})
"""Of ClusterReady: what every start goes through."""


def find(status: GRPOJobStatus, kind: ConditionType) -> Condition | None:
    """The condition of one type."""
    return next((c for c in status.conditions if c.type is kind), None)


def since(status: GRPOJobStatus, kind: ConditionType, value: ConditionStatus) -> datetime | None:
    """When a condition took the value, or None when it does not have it now."""
    condition = find(status, kind)
    return condition.last_transition_time if condition and condition.status is value else None


def put(status: GRPOJobStatus, new: Condition, now: datetime) -> GRPOJobStatus:
    """The status with a condition set; its transition time moves only when its status changes."""
    old = find(status, new.type)
    unchanged = old is not None and old.status is new.status
    time = old.last_transition_time if old is not None and unchanged else now
    new = new.model_copy(update={"last_transition_time": time})
    if old is None:
        conditions = (*status.conditions, new)
    else:
        conditions = tuple(new if c.type is new.type else c for c in status.conditions)
    return status.model_copy(update={"conditions": conditions})
