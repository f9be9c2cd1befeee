"""The state of a run: `Progress` from the driver, `GRPOJobStatus` in the API."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from .base import NonNegativeInt, Record


class Phase(StrEnum):
    PENDING = "Pending"
    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    RETRYING = "Retrying"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class ConditionType(StrEnum):
    ACCEPTED = "Accepted"
    CLUSTER_READY = "ClusterReady"
    TRAINING = "Training"
    STALLED = "Stalled"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class RunState(StrEnum):
    """The state of a driver."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_end(self) -> bool:
        """Whether it is the last state."""
        return self in (RunState.SUCCEEDED, RunState.STOPPED, RunState.FAILED)


class ExitCode:
    """Exit codes of a driver: done, invalid spec or data (not retryable), stopped by request."""

    SUCCESS = 0
    FAILURE = 1
    BAD_INPUT = 64
    STOPPED = 75


class ProgressStatus(Record):
    step: NonNegativeInt = 0
    total_steps: NonNegativeInt = 0
    episode: NonNegativeInt = 0
    percent: Annotated[float, Field(ge=0, le=100)] = 0.0
    eta_seconds: float | None = None


class MetricsStatus(Record):
    reward: float | None = None
    accuracy: float | None = None
    samples_per_second: float | None = None
    tokens_per_second: float | None = None
    buffer_depth: NonNegativeInt = 0
    buffer_capacity: NonNegativeInt = 0
    staleness: float | None = None
    consumer_idle_ratio: float | None = None


class WorkersStatus(Record):
    producers_ready: NonNegativeInt = 0
    producers_desired: NonNegativeInt = 0
    consumers_ready: NonNegativeInt = 0
    consumers_desired: NonNegativeInt = 0


class CheckpointStatus(Record):
    step: NonNegativeInt
    path: str
    time: datetime


class Progress(Record):
    """The response of the driver's `/progress`."""

    state: RunState = RunState.STARTING
    message: str = ""
    attempt: NonNegativeInt = 0
    progress: ProgressStatus = ProgressStatus()
    metrics: MetricsStatus = MetricsStatus()
    workers: WorkersStatus = WorkersStatus()
    producers_wanted: NonNegativeInt | None = None
    """Producers with which the consumers do not wait; None where their number is fixed."""
    checkpoint: CheckpointStatus | None = None
    updated: datetime | None = None


class Condition(Record):
    type: ConditionType
    status: ConditionStatus
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: NonNegativeInt = 0


class ImageStatus(Record):
    """The image of one role's pods; later pods of the run get the same."""

    role: str
    image: str
    """As the pods request it."""
    digest: str | None = None
    """Resolved by the first pod that ran it; absent where the node does not report one."""
    from_spec: bool = False
    """Whether the spec names it; otherwise it is the default of the time when the run began."""


class GRPOJobStatus(Record):
    phase: Phase = Phase.PENDING
    conditions: tuple[Condition, ...] = ()
    attempt: NonNegativeInt = 0
    restarts: NonNegativeInt = 0
    """Failures since the last sustained progress; `backoffLimit` of them are retried."""
    restart_step: NonNegativeInt = 0
    """Step of the newest checkpoint at the last failure."""
    evictions: NonNegativeInt = 0
    """Attempts that ended by an eviction or preemption; they are not failures."""
    images: tuple[ImageStatus, ...] = ()
    """Images of the run, by role."""
    head_pod_uid: str | None = None
    """UID of the head pod that the newest attempt was submitted to."""
    ray_cluster_name: str | None = None
    start_time: datetime | None = None
    completion_time: datetime | None = None
    observed_generation: NonNegativeInt = 0
    progress: ProgressStatus = ProgressStatus()
    metrics: MetricsStatus = MetricsStatus()
    workers: WorkersStatus = WorkersStatus()
    checkpoint: CheckpointStatus | None = None
    selector: str | None = None
