"""What is observed of one job at one moment. Frozen records, no Kubernetes types."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from grpo_trainer.spec import GRPOJobSpec, GRPOJobStatus, Progress


@dataclass(frozen=True, slots=True)
class Problem:
    """A cause that keeps a job from starting, for its owner."""

    reason: str
    """One CamelCase word, as in conditions and Events."""
    message: str


@dataclass(frozen=True, slots=True)
class Job:
    """A GRPOJob."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    created: datetime
    deleting: bool
    spec: GRPOJobSpec | None
    """None when this version cannot read it; `faults` lists why."""
    faults: str
    status: GRPOJobStatus


class Role(StrEnum):
    HEAD = "head"
    CONSUMER = "consumers"
    PRODUCER = "producers"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the job's cluster."""

    name: str
    uid: str
    role: Role
    created: datetime
    ready: bool
    ready_changed: datetime
    """When it became ready or stopped being so; its creation before that."""
    deletion_deadline: datetime | None = None
    """When its grace period ends, if it is being deleted."""
    node: str | None = None
    image: str | None = None
    """That its container requests."""
    image_id: str | None = None
    """That its container runs, as the kubelet reports it."""
    creating: bool = False
    """Whether it is on a node and its container has not been created."""
    problem: Problem | None = None
    """Why it does not run."""
    last_termination: str | None = None
    """How its container last terminated, such as OOMKilled."""
    stopped: bool = False
    """Whether its container has terminated and does not run again."""
    controlled: bool = True
    """Whether a RayCluster controls it, not a copy with the same labels."""
    disruption: str | None = None
    """Why Kubernetes evicts it: the reason of DisruptionTarget, such as PreemptionByScheduler."""

    @property
    def deleting(self) -> bool:
        """Whether it is being deleted."""
        return self.deletion_deadline is not None


@dataclass(frozen=True, slots=True)
class Cluster:
    """The job's RayCluster."""

    name: str
    uid: str
    deleting: bool
    suspended: bool
    """By Kueue: the operator never sets it."""
    producers: int
    """Producers that it requests."""
    service: str | None
    """Name of the head's Service, once KubeRay has made it."""
    queued: bool = False
    """Whether it has the label of a Kueue queue, whoever set it: then its size is fixed."""
    problem: Problem | None = None
    """Pods that KubeRay could not create."""


class RayJobState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class RayJob:
    """One attempt, as Ray's Jobs API reports it."""

    attempt: int
    state: RayJobState
    exit_code: int | None = None
    message: str = ""

    @property
    def active(self) -> bool:
        """Whether its driver runs or is about to."""
        return self.state in (RayJobState.PENDING, RayJobState.RUNNING)


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that a decision depends on, beside the time."""

    job: Job
    cluster: Cluster | None = None
    pods: tuple[Pod, ...] = ()
    """All that carry the job's UID, those of an earlier cluster too."""
    ray_jobs: tuple[RayJob, ...] | None = None
    """None when the head was not asked or did not respond."""
    progress: Progress | None = None
    """What the driver of the current attempt reports; None when it does not respond."""
    step_since: datetime | None = None
    """Since when the driver has reported the same step, while it responds."""
    silent_since: datetime | None = None
    """When the head last responded, if it does not now."""
    problem: Problem | None = None
    """Why the API server refused the last action."""
    cause: Problem | None = None
    """Why a pod waits for its volume, from Events."""

    @property
    def attempt(self) -> int:
        """Number of the current attempt, from 1."""
        return max(1, self.job.status.attempt)

    @property
    def first_start(self) -> bool:
        """Whether no attempt has ever been submitted."""
        status = self.job.status
        counts = (status.restarts, status.evictions, status.progress.step)
        return status.head_pod_uid is None and not any(counts)

    @property
    def run(self) -> RayJob | None:
        """The current attempt in Ray's list."""
        return next((job for job in self.ray_jobs or () if job.attempt == self.attempt), None)

    @property
    def producers(self) -> int:
        """The number of producers that the cluster should request.

        Kueue reserved quota for the pods that were requested, so a queued cluster keeps its size.
        With autoscale the number that the driver asks for; while it does not respond, unchanged.
        """
        spec = self.job.spec
        assert spec is not None
        scale = spec.producers.autoscale
        if self.cluster is not None and self.cluster.queued:
            return self.cluster.producers
        if scale is None:
            return spec.producers.replicas
        count = spec.producers.replicas if self.cluster is None else self.cluster.producers
        if self.progress is not None and self.progress.producers_wanted is not None:
            count = self.progress.producers_wanted
        return min(scale.max_replicas, max(scale.min_replicas, count))

    @property
    def own_pods(self) -> tuple[Pod, ...]:
        """Those that a RayCluster controls: anybody may give a pod the same labels."""
        return tuple(pod for pod in self.pods if pod.controlled)

    def pods_of(self, role: Role) -> tuple[Pod, ...]:
        """The pods of one role that are not being deleted."""
        return tuple(pod for pod in self.own_pods if pod.role is role and not pod.deleting)

    def ready(self, role: Role) -> int:
        """How many pods of a role are ready."""
        return sum(pod.ready for pod in self.pods_of(role))

    def draining_head(self, now: datetime) -> Pod | None:
        """The head pod in its grace period, in which its driver writes a checkpoint."""
        heads = (pod for pod in self.own_pods if pod.role is Role.HEAD)
        leaving = (p for p in heads if p.deletion_deadline and p.deletion_deadline > now)
        return None if self.head is not None else next(leaving, None)

    @property
    def head(self) -> Pod | None:
        """The head pod, unless it is being deleted."""
        return next(iter(self.pods_of(Role.HEAD)), None)
