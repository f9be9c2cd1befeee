"""Where a job runs: pods, pools, storage. A local run reads the counts and accelerators only."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from .base import NonNegativeInt, PositiveFloat, PositiveInt, Record
from .kubernetes import (
    Accelerator,
    ClassName,
    Image,
    Key,
    LabelKey,
    LabelValue,
    ObjectName,
    Quantity,
    ResourceName,
    TaintKey,
    VariableName,
    VariablePrefix,
)


class Backend(StrEnum):
    TRANSFORMERS = "transformers"
    VLLM = "vllm"


class ConsumerBackend(StrEnum):
    COLOSSALAI = "colossalai"
    FSDP = "fsdp"


class WeightUpdate(StrEnum):
    BETWEEN_REQUESTS = "betweenRequests"
    IN_FLIGHT = "inFlight"


class WeightTransport(StrEnum):
    OBJECT_STORE = "objectStore"
    COLLECTIVE = "collective"
    DELTA = "delta"


class Retention(StrEnum):
    RETAIN = "Retain"
    DELETE = "Delete"


# Not ReadWriteOncePod: the pods of a job, at least three, share the volume.
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


Count = Annotated[int, Field(ge=0)]


class ResourcesSpec(Record):
    requests: dict[ResourceName, Quantity | Count] = Field(default_factory=dict)
    """Guaranteed amount by resource name."""
    limits: dict[ResourceName, Quantity | Count] = Field(default_factory=dict)
    """Maximum amount by resource name."""


class TolerationSpec(Record):
    key: TaintKey | None = None
    """Key of the taint; every taint when absent, with operator Exists."""
    operator: Annotated[str, Field(pattern="^(Exists|Equal)$")] | None = None
    """Exists matches any value of the taint; Equal when absent."""
    value: LabelValue | None = None
    """Value of the taint; only with operator Equal."""
    effect: Annotated[str, Field(pattern="^(NoSchedule|PreferNoSchedule|NoExecute)$")] | None = None
    """Effect of the taint; every effect when absent."""
    toleration_seconds: int | None = None
    """Seconds that a NoExecute taint is tolerated; without a limit when absent."""


class PodPoolSpec(Record):
    image: Image | None = None
    """Container image; the chart's default for this role when absent."""
    resources: ResourcesSpec = ResourcesSpec()
    """Requests and limits of one pod, without its accelerators."""
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels that the node must have."""
    tolerations: tuple[TolerationSpec, ...] = ()
    """Taints of the node that are tolerated."""
    pod_template: dict[str, Any] = Field(default_factory=dict)
    """Strategic merge patch over the rendered pod template."""


class HeadSpec(PodPoolSpec):
    """The head pod with Ray's head and the driver; it has no accelerator."""


class AutoscaleSpec(Record):
    min_replicas: PositiveInt = 1
    """Minimum number of producers; at least minAvailable."""
    max_replicas: PositiveInt
    """Maximum number of producers."""


class EngineCheckSpec(Record):
    """Comparison of the engines' log-probabilities with the trainer's, at equal weights."""

    interval: Annotated[int, Field(ge=0)] = 100
    """Steps between checks, after the one before the first step; 0 checks only that one."""
    max_mismatch: PositiveFloat = 0.1
    """Mean difference in nats per token beyond which a producer's weights are wrong."""


class ProducersSpec(PodPoolSpec):
    replicas: PositiveInt = 2
    """Producers, one pod each; scalable while running. With autoscale the initial number."""
    autoscale: AutoscaleSpec | None = None
    """Scale the producers so that the consumers do not wait; a fixed number when absent."""
    min_available: PositiveInt = 1
    """Training starts when this many are ready."""
    backend: Backend = Backend.TRANSFORMERS
    """Inference engine."""
    weight_update: WeightUpdate = WeightUpdate.BETWEEN_REQUESTS
    """When producers apply new weights: between completions, or (vllm) during them."""
    weight_transport: WeightTransport = WeightTransport.OBJECT_STORE
    """How weights reach the producers: each fetches them, one broadcast (gloo, NCCL), or each
    fetches the elements that changed."""
    tensor_parallel_size: PositiveInt = 1
    """Accelerators of one producer; more than 1 needs backend vllm."""
    engine_check: EngineCheckSpec = EngineCheckSpec()
    """Checks that engines compute with the published weights."""
    accelerator: Accelerator = "nvidia.com/gpu"
    """Extended resource of one accelerator, or `cpu`."""

    @property
    def most_replicas(self) -> int:
        """The maximum number of producers at a time."""
        return self.replicas if self.autoscale is None else self.autoscale.max_replicas


class ConsumersSpec(PodPoolSpec):
    replicas: PositiveInt = 1
    """Training pods."""
    processes_per_replica: PositiveInt = 2
    """Training processes in a pod, one accelerator each."""
    backend: ConsumerBackend = ConsumerBackend.COLOSSALAI
    """Training library: ColossalAI, or FSDP2 with the models of transformers 5."""
    tensor_parallel_size: PositiveInt = 1
    """Processes that share each layer."""
    pipeline_parallel_size: PositiveInt = 1
    """Stages that the layers are split into."""
    zero_stage: Annotated[int, Field(ge=0, le=2)] = 0
    """ZeRO stage of the optimizer: 0 off, 1 shards its state, 2 its gradients too."""
    accelerator: Accelerator = "nvidia.com/gpu"
    """Extended resource of one accelerator, or `cpu`."""


class StorageSpec(Record):
    claim_name: ObjectName | None = None
    """An existing PersistentVolumeClaim. Set either this or `size`."""
    size: Quantity | None = None
    """Size of the claim to create."""
    storage_class_name: ClassName | None = None
    """StorageClass of a created claim; the cluster's default when absent."""
    access_modes: AccessModes = (AccessMode.READ_WRITE_ONCE,)
    """Access modes of a created claim; pods on several nodes need ReadWriteMany."""
    retention: Retention = Retention.RETAIN
    """Whether a created claim is kept or deleted when the job is deleted."""


class CleanupPolicySpec(Record):
    keep_failed_pods_seconds: NonNegativeInt = 0
    """Seconds for which the pods of a failed job stay, with their accelerators and quota."""


class SecretKeyRef(Record):
    name: ObjectName
    """Name of the Secret or ConfigMap."""
    key: Key
    """Key in its data."""


class EnvValueFrom(Record):
    secret_key_ref: SecretKeyRef | None = None
    """A key of a Secret."""
    config_map_key_ref: SecretKeyRef | None = None
    """A key of a ConfigMap."""


class EnvVar(Record):
    name: VariableName
    """Name of the variable."""
    value: str | None = None
    """Its value."""
    value_from: EnvValueFrom | None = None
    """Source of its value instead; only in a cluster."""


class NamedRef(Record):
    name: ObjectName
    """Name in the job's namespace."""


class EnvFromSource(Record):
    prefix: VariablePrefix | None = None
    """Prefix of each variable's name."""
    secret_ref: NamedRef | None = None
    """A Secret."""
    config_map_ref: NamedRef | None = None
    """A ConfigMap."""
