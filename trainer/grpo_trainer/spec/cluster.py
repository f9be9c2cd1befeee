"""Where it runs: pods, pools, storage, scheduling. A local run reads little but the counts."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from .base import NonEmptyStr, PositiveInt, Record


class Backend(StrEnum):
    TRANSFORMERS = "transformers"
    VLLM = "vllm"


class WeightUpdate(StrEnum):
    BETWEEN_REQUESTS = "betweenRequests"
    IN_FLIGHT = "inFlight"


class Retention(StrEnum):
    RETAIN = "Retain"
    DELETE = "Delete"


class AccessMode(StrEnum):
    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"


CPU = "cpu"
Quantity = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?([eE][0-9]+|[munkKMGTPE]i?)?$")]


class ResourcesSpec(Record):
    requests: dict[NonEmptyStr, Quantity | int] = Field(default_factory=dict)
    limits: dict[NonEmptyStr, Quantity | int] = Field(default_factory=dict)


class TolerationSpec(Record):
    key: str | None = None
    operator: Annotated[str, Field(pattern="^(Exists|Equal)$")] | None = None
    value: str | None = None
    effect: Annotated[str, Field(pattern="^(NoSchedule|PreferNoSchedule|NoExecute)$")] | None = None
    toleration_seconds: int | None = None


class PodPoolSpec(Record):
    image: NonEmptyStr | None = None
    """Container image; the chart's default for this role when absent."""
    resources: ResourcesSpec = ResourcesSpec()
    """Requests and limits of one pod, beside its accelerators."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[TolerationSpec, ...] = ()
    pod_template: dict[str, Any] = Field(default_factory=dict)
    """Strategic merge patch over the rendered pod template."""


class HeadSpec(PodPoolSpec):
    """The head pod: Ray's head and the driver. It holds no accelerator."""


class ProducersSpec(PodPoolSpec):
    replicas: PositiveInt = 2
    """Inference producers, one pod each; scalable while running."""
    min_available: PositiveInt = 1
    """Training starts once this many are ready."""
    backend: Backend = Backend.TRANSFORMERS
    weight_update: WeightUpdate = WeightUpdate.BETWEEN_REQUESTS
    """When new weights are taken: between replies, or (vllm) in the middle of running ones."""
    tensor_parallel_size: PositiveInt = 1
    """Accelerators of one producer; more than 1 needs backend vllm."""
    accelerator: NonEmptyStr = "nvidia.com/gpu"
    """Extended resource of one accelerator, or `cpu`."""


class ConsumersSpec(PodPoolSpec):
    replicas: PositiveInt = 1
    """Training pods."""
    processes_per_replica: PositiveInt = 2
    """Training processes in a pod, one accelerator each."""
    tensor_parallel_size: PositiveInt = 1
    pipeline_parallel_size: PositiveInt = 1
    zero_stage: Annotated[int, Field(ge=0, le=2)] = 0
    """ZeRO stage of the optimizer: 0 off, 1 shards its state, 2 its gradients too."""
    accelerator: NonEmptyStr = "nvidia.com/gpu"
    """Extended resource of one accelerator, or `cpu`."""


class StorageSpec(Record):
    claim_name: NonEmptyStr | None = None
    """An existing PersistentVolumeClaim; or give `size` and one is created."""
    size: Quantity | None = None
    storage_class_name: str | None = None
    access_modes: tuple[AccessMode, ...] = (AccessMode.READ_WRITE_ONCE,)
    retention: Retention = Retention.RETAIN
    """What happens to a created claim when the job is deleted."""


class SecretKeyRef(Record):
    name: NonEmptyStr
    key: NonEmptyStr


class EnvValueFrom(Record):
    secret_key_ref: SecretKeyRef | None = None
    config_map_key_ref: SecretKeyRef | None = None


class EnvVar(Record):
    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    value: str | None = None
    value_from: EnvValueFrom | None = None


class NamedRef(Record):
    name: NonEmptyStr


class EnvFromSource(Record):
    prefix: str | None = None
    secret_ref: NamedRef | None = None
    config_map_ref: NamedRef | None = None
