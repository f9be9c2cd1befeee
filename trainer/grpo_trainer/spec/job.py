"""The GRPOJob itself."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from .algorithm import AlgorithmSpec
from .base import (
    MAX_NAME_LENGTH,
    NAME_PATTERN,
    NonNegativeInt,
    PositiveInt,
    Record,
)
from .cluster import (
    CleanupPolicySpec,
    ConsumersSpec,
    EnvFromSource,
    EnvVar,
    HeadSpec,
    NamedRef,
    ProducersSpec,
    StorageSpec,
)
from .environment import EnvironmentSpec
from .evaluation import EvaluationSpec
from .kubernetes import ControllerName, LabelKey, LabelValue, ObjectName, QueueName
from .reward import RewardSpec
from .rules import broken_rules
from .training import (
    BatchSpec,
    BufferSpec,
    CheckpointSpec,
    DatasetSpec,
    MixtureSetSpec,
    ModelSpec,
    RolloutLogSpec,
    SamplingSpec,
    TrackingSpec,
)


class GRPOJobSpec(Record):
    """A training run. In a cluster only the fields in `MUTABILITY` may change."""

    model: ModelSpec = ModelSpec()
    """The model that is trained."""
    dataset: DatasetSpec = DatasetSpec()
    """The prompts and their reference answers."""
    datasets: Annotated[tuple[MixtureSetSpec, ...], Field(max_length=32)] = ()
    """A mixture of data sets, in place of `dataset`."""
    evaluation: EvaluationSpec = EvaluationSpec()
    """Evaluations during the run."""
    algorithm: AlgorithmSpec = AlgorithmSpec()
    """Advantage, loss and optimizer."""
    num_episodes: PositiveInt = 1
    """Passes over the data set."""
    max_steps: PositiveInt | None = None
    """Optimizer steps after which the run ends, unless the data end before."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 42
    """Seed of the order of the prompts, of the sampling and of all other random numbers."""
    reward: RewardSpec = RewardSpec()
    """How completions are scored."""
    environment: EnvironmentSpec | None = None
    """Environment that answers the model over several turns and scores the episode; a completion
    is a single turn when absent."""
    sampling: SamplingSpec = SamplingSpec()
    """How completions are sampled."""
    batch: BatchSpec = BatchSpec()
    """Sizes of the batches of sampling and training."""
    buffer: BufferSpec = BufferSpec()
    """The buffer of scored groups between producers and consumers."""
    producers: ProducersSpec = ProducersSpec()
    """The pool of inference pods."""
    consumers: ConsumersSpec = ConsumersSpec()
    """The pool of training pods."""
    head: HeadSpec = HeadSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    """When checkpoints are written, and how many are kept."""
    rollouts: RolloutLogSpec = RolloutLogSpec()
    """The log of sampled completions."""
    storage: StorageSpec | None = None
    """Volume of the run directory; required in a cluster."""
    tracking: TrackingSpec = TrackingSpec()
    """Experiment trackers."""

    suspend: bool = False
    """Write a checkpoint and delete the pods; resume when it is false again."""
    backoff_limit: NonNegativeInt = 3
    """Retries before the job fails, since the last sustained progress; evictions do not count."""
    active_deadline_seconds: PositiveInt | None = None
    """Seconds after which a job fails. They do not count while it is queued or suspended, and start
    again after."""
    startup_deadline_seconds: PositiveInt = 1800
    """Seconds that the pods may take to become ready at the first start."""
    first_step_timeout_seconds: PositiveInt = 7200
    """Seconds a driver may take for its first step, in which it downloads the model and starts the
    engines."""
    stall_timeout_seconds: PositiveInt = 3600
    """Seconds that the driver may report the same step before the attempt counts as failed."""
    worker_timeout_seconds: PositiveInt = 1800
    """Seconds after which the driver gives up a rollout or a call to a consumer and restarts that
    worker."""
    cleanup_policy: CleanupPolicySpec = CleanupPolicySpec()
    """What stays of a job that has ended."""
    ttl_seconds_after_finished: NonNegativeInt | None = None
    """Seconds from its end to the deletion of the GRPOJob; never when absent."""

    managed_by: ControllerName | None = None
    """Controller that runs the job, as in batch Job: the operator ignores jobs of others. The
    operator when absent or grpo-operator.io/grpo-operator."""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels of the RayCluster and of all pods, for schedulers, costs and policies. Those of Kueue
    are on the RayCluster alone."""
    annotations: dict[LabelKey, str] = Field(default_factory=dict)
    """Annotations of the RayCluster and of all pods."""
    queue_name: QueueName | None = None
    """LocalQueue of Kueue."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of all pods."""
    image_pull_secrets: tuple[NamedRef, ...] = ()
    """Secrets for pulling the images."""
    env: tuple[EnvVar, ...] = ()
    """Environment variables of all processes. A local run uses those with a `value`."""
    env_from: tuple[EnvFromSource, ...] = ()
    """Secrets and ConfigMaps whose keys become variables; only in a cluster."""
    service_account_name: ObjectName | None = None
    """ServiceAccount of all pods; they have no token when absent."""

    @property
    def consumer_processes(self) -> int:
        """Training processes of all pods."""
        return self.consumers.replicas * self.consumers.processes_per_replica

    @property
    def data_parallel_size(self) -> int:
        """Data-parallel groups: processes over (tensor x pipeline) parallel size."""
        parallel = self.consumers.tensor_parallel_size * self.consumers.pipeline_parallel_size
        return self.consumer_processes // parallel

    @property
    def training_sets(self) -> tuple[DatasetSpec, ...]:
        """The data sets that are trained on."""
        return self.datasets or (self.dataset,)

    @property
    def groups_per_step(self) -> int:
        """Prompts (groups) of one optimizer step over all data-parallel groups."""
        per_group = self.batch.train_batch_size * self.data_parallel_size
        return self.batch.global_prompts or per_group

    @property
    def longest_sample(self) -> int:
        """Tokens of the longest prompt with its completion or episode."""
        return self.sampling.max_prompt_tokens + self.completion_tokens

    @property
    def buffer_capacity(self) -> int:
        """Capacity of the buffer in scored groups."""
        if self.buffer.max_prompts >= 0:
            return self.buffer.max_prompts
        if self.batch.global_prompts is not None:
            return max(1, self.batch.global_prompts // 2)
        return 2 * self.batch.train_minibatch_size * self.data_parallel_size

    @property
    def completion_tokens(self) -> int:
        """Longest completion, or longest episode behind its opening, in tokens."""
        if self.environment is not None:
            return self.environment.max_episode_tokens
        return self.sampling.max_new_tokens

    @model_validator(mode="after")
    def _keep_rules(self) -> "GRPOJobSpec":
        faults = broken_rules(self)
        if faults:
            text = "\n".join(str(fault) for fault in faults)
            raise PydanticCustomError("cross_field", "{text}", {"text": text, "faults": faults})
        return self


class Metadata(Record):
    """The part of an object's metadata that a manifest sets."""

    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=MAX_NAME_LENGTH)] = "grpo"
    namespace: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class GRPOJob(Record):
    """A manifest."""

    api_version: Literal["grpo-operator.io/v1alpha1", "grpo-operator.io/v1beta1"] = (
        "grpo-operator.io/v1alpha1"
    )
    """Both versions have the same fields."""
    kind: Literal["GRPOJob"] = "GRPOJob"
    metadata: Metadata = Metadata()
    spec: GRPOJobSpec = GRPOJobSpec()

    def to_manifest(self) -> dict[str, Any]:
        """Plain data in YAML's camel case, without fields at their defaults."""
        body = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": self.metadata.name, **body.get("metadata", {})},
            "spec": body.get("spec", {}),
        }
