"""The state of a run: `Progress` from the driver, `GRPOJobStatus` in the API."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field

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
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    ACCEPTED = "Accepted"
    CLUSTER_READY = "ClusterReady"
    TRAINING = "Training"
    CODE_CONFINED = "CodeConfined"
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


class CodeProtection(StrEnum):
    """What keeps programs of completions from the files of the head."""

    LANDLOCK = "landlock"
    NAMESPACES = "namespaces"
    NONE = "none"


class ExitCode:
    """Exit codes of a driver: done, invalid spec or data (not retryable), stopped by request."""

    SUCCESS = 0
    FAILURE = 1
    BAD_INPUT = 64
    STOPPED = 75


class ProgressStatus(Record):
    step: NonNegativeInt = 0
    """Completed optimizer steps."""
    total_steps: NonNegativeInt = 0
    """Planned optimizer steps."""
    episode: NonNegativeInt = 0
    """Number of the current pass over the data set, from 0."""
    percent: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Completed share of the planned steps."""
    eta_seconds: float | None = None
    """Estimated seconds to the end."""


class MetricsStatus(Record):
    reward: float | None = None
    """Mean reward of the latest step."""
    accuracy: float | None = None
    """Mean accuracy of the latest step."""
    samples_per_second: float | None = None
    """Completions trained on per second."""
    tokens_per_second: float | None = None
    """Response tokens trained on per second."""
    buffer_depth: NonNegativeInt = 0
    """Scored groups in the buffer."""
    buffer_capacity: NonNegativeInt = 0
    """Scored groups that the buffer can hold."""
    staleness: float | None = None
    """Mean staleness of the latest step in weight versions."""
    consumer_idle_ratio: float | None = None
    """Share of the time that the consumers wait for data."""


class WorkersStatus(Record):
    producers_ready: NonNegativeInt = 0
    """Producer pods that are ready."""
    producers_desired: NonNegativeInt = 0
    """Producer pods that the RayCluster should have."""
    consumers_ready: NonNegativeInt = 0
    """Consumer pods that are ready."""
    consumers_desired: NonNegativeInt = 0
    """Consumer pods that the RayCluster should have."""


class CheckpointStatus(Record):
    step: NonNegativeInt
    """Optimizer step after which it was written."""
    path: str
    """Its directory."""
    time: datetime
    """When it was complete."""


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
    code_protection: CodeProtection | None = None
    """None where no completion is run."""
    updated: datetime | None = None


def _as_written(schema: dict[str, Any]) -> None:
    """The definition requires what the operator always writes; conditions of earlier versions are
    still read."""
    properties = schema["properties"]
    del properties["reason"]["default"]
    properties["reason"]["minLength"] = 1
    schema["required"] = ["type", "status", "reason", "lastTransitionTime"]


class Condition(Record):
    """As in Kubernetes: metav1.Condition."""

    model_config = ConfigDict(json_schema_extra=_as_written)

    type: ConditionType
    """What it is about."""
    status: ConditionStatus
    """Unknown where it cannot be observed."""
    reason: str = ""
    """Cause of the status in one CamelCase word."""
    message: str = ""
    """Details for people."""
    last_transition_time: datetime | None = None
    """When the status last changed."""
    observed_generation: NonNegativeInt = 0
    """Generation of the job that it is about."""


class ImageStatus(Record):
    """The image of one role's pods; later pods of the run get the same."""

    role: str
    """The pool of the pods, or head."""
    image: str
    """As the pods request it."""
    digest: str | None = None
    """Resolved by the first pod that ran it; absent where the node does not report one."""
    from_spec: bool = False
    """Whether the spec names it; otherwise it is the default of the time when the run began."""


class GRPOJobStatus(Record):
    """What the operator observed of a job."""

    phase: Phase = Phase.PENDING
    """Summary of the conditions in one word."""
    conditions: tuple[Condition, ...] = ()
    """Ready, Reconciling and Stalled follow the rules of kstatus."""
    attempt: NonNegativeInt = 0
    """Number of the current attempt, from 1."""
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
    """The RayCluster; absent while there is none."""
    start_time: datetime | None = None
    """When the job started, or resumed after it was queued or suspended."""
    completion_time: datetime | None = None
    """When it succeeded or failed."""
    observed_generation: NonNegativeInt = 0
    """Generation of the spec that the operator last acted on."""
    progress: ProgressStatus = ProgressStatus()
    """How far the run is."""
    metrics: MetricsStatus = MetricsStatus()
    """Measurements of the run."""
    workers: WorkersStatus = WorkersStatus()
    """Numbers of pods."""
    checkpoint: CheckpointStatus | None = None
    """The newest complete checkpoint."""
    selector: str | None = None
    """Label selector of the producer pods, for the scale subresource."""
