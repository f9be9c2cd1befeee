"""Where it runs: pods, pools, storage, scheduling. A local run reads little but the counts."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from .base import NonEmptyStr, PositiveInt, Record


class Backend(StrEnum):
    TRANSFORMERS = "transformers"
    VLLM = "vllm"


class WeightUpdate(StrEnum):
    BETWEEN_REQUESTS = "betweenRequests"
    IN_FLIGHT = "inFlight"


class WeightTransport(StrEnum):
    OBJECT_STORE = "objectStore"
    COLLECTIVE = "collective"


class Retention(StrEnum):
    RETAIN = "Retain"
    DELETE = "Delete"


# Not ReadWriteOncePod: a job's pods, three at the least, share the volume.
class AccessMode(StrEnum):
    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_WRITE_MANY = "ReadWriteMany"


def _not_empty(modes: tuple[AccessMode, ...]) -> tuple[AccessMode, ...]:
    if not modes:
        raise PydanticCustomError("too_short", "must have at least 1 item")
    return modes


# `min_length` would also fail where the items themselves are invalid.
AccessModes = Annotated[
    tuple[AccessMode, ...],
    AfterValidator(_not_empty),
    Field(json_schema_extra={"minItems": 1}),
]


CPU = "cpu"
Quantity = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?([eE][0-9]+|[munkKMGTPE]i?)?$")]


class ResourcesSpec(Record):
    requests: dict[NonEmptyStr, Quantity | int] = Field(default_factory=dict)
    """What the pod is promised, by resource name."""
    limits: dict[NonEmptyStr, Quantity | int] = Field(default_factory=dict)
    """What the pod may not exceed, by resource name."""


class TolerationSpec(Record):
    key: str | None = None
    """Taint that is tolerated; every taint when absent."""
    operator: Annotated[str, Field(pattern="^(Exists|Equal)$")] | None = None
    """Whether the taint's value counts; Equal when absent."""
    value: str | None = None
    """Value of the taint."""
    effect: Annotated[str, Field(pattern="^(NoSchedule|PreferNoSchedule|NoExecute)$")] | None = None
    """Effect of the taint; every effect when absent."""
    toleration_seconds: int | None = None
    """Seconds that NoExecute is tolerated; for ever when absent."""


class PodPoolSpec(Record):
    image: NonEmptyStr | None = None
    """Container image; the chart's default for this role when absent."""
    resources: ResourcesSpec = ResourcesSpec()
    """Requests and limits of one pod, beside its accelerators."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: tuple[TolerationSpec, ...] = ()
    """Taints that a node may have."""
    pod_template: dict[str, Any] = Field(default_factory=dict)
    """Strategic merge patch over the rendered pod template."""


class HeadSpec(PodPoolSpec):
    """The head pod: Ray's head and the driver. It holds no accelerator."""


class AutoscaleSpec(Record):
    min_replicas: PositiveInt = 1
    """Producers to keep at the least; at least minAvailable."""
    max_replicas: PositiveInt
    """Producers to have at the most."""


class ProducersSpec(PodPoolSpec):
    replicas: PositiveInt = 2
    """Inference producers, one pod each; scalable while running. With autoscale the number to start
    with."""
    autoscale: AutoscaleSpec | None = None
    """Have as many producers as keep the consumers busy; a fixed number when absent."""
    min_available: PositiveInt = 1
    """Training starts once this many are ready."""
    backend: Backend = Backend.TRANSFORMERS
    """Inference engine."""
    weight_update: WeightUpdate = WeightUpdate.BETWEEN_REQUESTS
    """When new weights are taken: between completions, or (vllm) in the middle of running ones."""
    weight_transport: WeightTransport = WeightTransport.OBJECT_STORE
    """How new weights come: each producer fetches them, or all get one broadcast (gloo, NCCL)."""
    tensor_parallel_size: PositiveInt = 1
    """Accelerators of one producer; more than 1 needs backend vllm."""
    accelerator: NonEmptyStr = "nvidia.com/gpu"
    """Extended resource of one accelerator, or `cpu`."""

    @property
    def most_replicas(self) -> int:
        """Producers there may be at once."""
        return self.replicas if self.autoscale is None else self.autoscale.max_replicas


class ConsumersSpec(PodPoolSpec):
    replicas: PositiveInt = 1
    """Training pods."""
    processes_per_replica: PositiveInt = 2
    """Training processes in a pod, one accelerator each."""
    tensor_parallel_size: PositiveInt = 1
    """Processes that share each layer."""
    pipeline_parallel_size: PositiveInt = 1
    """Stages that the layers are split into."""
    zero_stage: Annotated[int, Field(ge=0, le=2)] = 0
    """ZeRO stage of the optimizer: 0 off, 1 shards its state, 2 its gradients too."""
    accelerator: NonEmptyStr = "nvidia.com/gpu"
    """Extended resource of one accelerator, or `cpu`."""


class StorageSpec(Record):
    claim_name: NonEmptyStr | None = None
    """An existing PersistentVolumeClaim; or give `size` and one is created."""
    size: Quantity | None = None
    """Size of the claim that is created."""
    storage_class_name: str | None = None
    """StorageClass of a created claim; the cluster's default when absent."""
    access_modes: AccessModes = (AccessMode.READ_WRITE_ONCE,)
    """Access modes of a created claim; pods on several nodes need ReadWriteMany."""
    retention: Retention = Retention.RETAIN
    """What happens to a created claim when the job is deleted."""


class SecretKeyRef(Record):
    name: NonEmptyStr
    """Name of the Secret or ConfigMap."""
    key: NonEmptyStr
    """Key in it."""


class EnvValueFrom(Record):
    secret_key_ref: SecretKeyRef | None = None
    """A key of a Secret."""
    config_map_key_ref: SecretKeyRef | None = None
    """A key of a ConfigMap."""


class EnvVar(Record):
    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Name of the variable."""
    value: str | None = None
    """Its value."""
    value_from: EnvValueFrom | None = None
    """Where its value comes from; only in a cluster."""


class NamedRef(Record):
    name: NonEmptyStr
    """Name in the job's namespace."""


class EnvFromSource(Record):
    prefix: str | None = None
    """Put before each name."""
    secret_ref: NamedRef | None = None
    """A Secret."""
    config_map_ref: NamedRef | None = None
    """A ConfigMap."""
