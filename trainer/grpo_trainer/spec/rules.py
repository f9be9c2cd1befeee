"""Rules across fields, each in one record: the check, the same check in CEL, and the message.

`broken_rules` applies the checks here; the CustomResourceDefinition carries their CEL, so that the
API server refuses the same manifests with the same words.
"""

from typing import TYPE_CHECKING

from .cluster import Backend, WeightUpdate
from .environment_rules import ENVIRONMENT_RULES
from .faults import Fault, FaultKind, invalid
from .pod_rules import POD_RULES
from .reward_rules import REWARD_RULES
from .rule import Operand, Rule, field_value
from .training import Dtype

if TYPE_CHECKING:
    from .job import GRPOJobSpec


def _field(path: str) -> Operand:
    return Operand(f"self.{path}", lambda spec: field_value(spec, path))


_PROCESSES = Operand(
    "self.consumers.replicas * self.consumers.processesPerReplica",
    lambda spec: spec.consumer_processes,
)
_PARALLEL = Operand(
    "self.consumers.tensorParallelSize * self.consumers.pipelineParallelSize",
    lambda spec: spec.consumers.tensor_parallel_size * spec.consumers.pipeline_parallel_size,
)
_MINIBATCH_SAMPLES = Operand(
    "self.batch.trainMinibatchSize * self.sampling.numGenerations",
    lambda spec: spec.batch.train_minibatch_size * spec.sampling.num_generations,
)

_CONSUMERS = (
    Rule(
        field="consumers.processesPerReplica",
        cel=f"({_PROCESSES.cel}) % ({_PARALLEL.cel}) == 0",
        holds=lambda s: s.consumer_processes % _PARALLEL.value(s) == 0,
        must="replicas x processesPerReplica ({}) must be a multiple of "
        "tensorParallelSize x pipelineParallelSize ({})",
        operands=(_PROCESSES, _PARALLEL),
    ),
    Rule(
        field="consumers.zeroStage",
        cel="self.consumers.pipelineParallelSize == 1 || self.consumers.zeroStage != 2",
        holds=lambda s: s.consumers.pipeline_parallel_size == 1 or s.consumers.zero_stage != 2,
        must="must be 0 or 1 with pipelineParallelSize > 1: a pipeline accumulates into gradients "
        "that stage 2 frees",
    ),
    Rule(
        field="consumers.zeroStage",
        cel=f"{_PARALLEL.cel} == 1 || self.consumers.zeroStage == 0 || "
        "self.model.dtype != 'float32'",
        holds=lambda s: (
            _PARALLEL.value(s) == 1
            or s.consumers.zero_stage == 0
            or s.model.dtype is not Dtype.FLOAT32
        ),
        must="must be 0 with float32 and tensor or pipeline parallelism, or set "
        "model.dtype: bfloat16",
    ),
)

_BATCH = (
    Rule(
        field="batch.trainBatchSize",
        cel="self.batch.trainBatchSize % self.batch.trainMinibatchSize == 0",
        holds=lambda s: s.batch.train_batch_size % s.batch.train_minibatch_size == 0,
        must="must be a multiple of trainMinibatchSize ({})",
        operands=(_field("batch.trainMinibatchSize"),),
    ),
    Rule(
        field="batch.inferenceBatchSize",
        cel="self.batch.inferenceBatchSize % self.batch.inferenceMicrobatchSize == 0",
        holds=lambda s: s.batch.inference_batch_size % s.batch.inference_microbatch_size == 0,
        must="must be a multiple of inferenceMicrobatchSize ({})",
        operands=(_field("batch.inferenceMicrobatchSize"),),
    ),
    Rule(
        field="batch.trainMicrobatchSize",
        cel=f"self.batch.trainMicrobatchSize <= {_MINIBATCH_SAMPLES.cel}",
        holds=lambda s: s.batch.train_microbatch_size <= _MINIBATCH_SAMPLES.value(s),
        must="must be at most trainMinibatchSize x numGenerations ({}) samples",
        operands=(_MINIBATCH_SAMPLES,),
    ),
)


def _overlong_fits(spec: "GRPOJobSpec") -> bool:
    tokens = spec.algorithm.overlong.buffer_tokens
    return tokens is None or tokens <= spec.sampling.max_new_tokens


def _rate_decays(spec: "GRPOJobSpec") -> bool:
    minimum = spec.algorithm.optimizer.min_learning_rate
    return minimum is None or minimum <= spec.algorithm.learning_rate


_OPTIMIZER = "self.algorithm.optimizer"
_ALGORITHM = (
    Rule(
        field="algorithm.optimizer.minLearningRate",
        cel=f"!has({_OPTIMIZER}.minLearningRate) || "
        f"{_OPTIMIZER}.minLearningRate <= self.algorithm.learningRate",
        holds=_rate_decays,
        must="must be at most algorithm.learningRate ({})",
        operands=(_field("algorithm.learningRate"),),
    ),
    Rule(
        field="algorithm.optimizer.warmupSteps",
        cel=f"!has(self.maxSteps) || {_OPTIMIZER}.warmupSteps < self.maxSteps",
        holds=lambda s: s.max_steps is None or s.algorithm.optimizer.warmup_steps < s.max_steps,
        must="must be less than maxSteps ({})",
        operands=(_field("maxSteps"),),
    ),
    Rule(
        field="algorithm.dynamicSampling.minAccuracy",
        cel="self.algorithm.dynamicSampling.minAccuracy < "
        "self.algorithm.dynamicSampling.maxAccuracy",
        holds=lambda s: (
            s.algorithm.dynamic_sampling.min_accuracy < s.algorithm.dynamic_sampling.max_accuracy
        ),
        must="must be less than maxAccuracy ({})",
        operands=(_field("algorithm.dynamicSampling.maxAccuracy"),),
    ),
    Rule(
        field="algorithm.overlong.bufferTokens",
        cel="!has(self.algorithm.overlong.bufferTokens) || "
        "self.algorithm.overlong.bufferTokens <= self.sampling.maxNewTokens",
        holds=_overlong_fits,
        must="must be at most sampling.maxNewTokens ({})",
        operands=(_field("sampling.maxNewTokens"),),
    ),
)

_SCALE = "self.producers.autoscale"


def _replicas_in_range(spec: "GRPOJobSpec") -> bool:
    scale = spec.producers.autoscale
    if scale is None or scale.min_replicas > scale.max_replicas:
        return True
    return scale.min_replicas <= spec.producers.replicas <= scale.max_replicas


_PRODUCERS = (
    Rule(
        field="producers.minAvailable",
        cel="self.producers.minAvailable <= self.producers.replicas",
        holds=lambda s: s.producers.min_available <= s.producers.replicas,
        must="must be at most replicas ({})",
        operands=(_field("producers.replicas"),),
    ),
    Rule(
        field="producers.tensorParallelSize",
        cel="self.producers.tensorParallelSize == 1 || self.producers.backend != 'transformers'",
        holds=lambda s: (
            s.producers.tensor_parallel_size == 1 or s.producers.backend is not Backend.TRANSFORMERS
        ),
        must="must be 1, or set backend: vllm",
    ),
    Rule(
        field="producers.weightUpdate",
        cel="self.producers.weightUpdate == 'betweenRequests' || self.producers.backend == 'vllm'",
        holds=lambda s: (
            s.producers.weight_update is WeightUpdate.BETWEEN_REQUESTS
            or s.producers.backend is Backend.VLLM
        ),
        must="must be betweenRequests, or set backend: vllm",
    ),
    Rule(
        field="producers.autoscale.minReplicas",
        cel=f"!has({_SCALE}) || {_SCALE}.minReplicas <= {_SCALE}.maxReplicas",
        holds=lambda s: (
            s.producers.autoscale is None
            or s.producers.autoscale.min_replicas <= s.producers.autoscale.max_replicas
        ),
        must="must be at most maxReplicas ({})",
        operands=(_field("producers.autoscale.maxReplicas"),),
    ),
    Rule(
        field="producers.replicas",
        cel=f"!has({_SCALE}) || {_SCALE}.minReplicas > {_SCALE}.maxReplicas || "
        f"({_SCALE}.minReplicas <= self.producers.replicas && "
        f"self.producers.replicas <= {_SCALE}.maxReplicas)",
        holds=_replicas_in_range,
        must="must be within autoscale's range ({} to {})",
        operands=(
            _field("producers.autoscale.minReplicas"),
            _field("producers.autoscale.maxReplicas"),
        ),
    ),
    Rule(
        field="producers.minAvailable",
        cel=f"!has({_SCALE}) || self.producers.minAvailable <= {_SCALE}.minReplicas",
        holds=lambda s: (
            s.producers.autoscale is None
            or s.producers.min_available <= s.producers.autoscale.min_replicas
        ),
        must="must be at most autoscale.minReplicas ({})",
        operands=(_field("producers.autoscale.minReplicas"),),
    ),
    Rule(
        field="queueName",
        cel=f"!has({_SCALE}) || !has(self.queueName)",
        holds=lambda s: s.producers.autoscale is None or s.queue_name is None,
        must="with producers.autoscale: Kueue reserves quota for a fixed number of pods",
        kind=FaultKind.FORBIDDEN,
    ),
)

_CLUSTER = (
    Rule(
        field="storage",
        cel="has(self.storage.claimName) != has(self.storage.size)",
        holds=lambda s: (
            s.storage is None or (s.storage.claim_name is None) != (s.storage.size is None)
        ),
        must="must have exactly one of claimName and size",
        shown=False,
    ),
    Rule(
        field="tracking.wandb.secretName",
        cel="!has(self.tracking.wandb) || has(self.tracking.wandb.secretName)",
        holds=None,
        must="in a cluster: a Secret with key WANDB_API_KEY",
        kind=FaultKind.REQUIRED,
    ),
    Rule(
        field="tracking.mlflow.trackingUri",
        cel="!has(self.tracking.mlflow) || has(self.tracking.mlflow.trackingUri)",
        holds=None,
        must="in a cluster: the address of the server, or a database on the volume",
        kind=FaultKind.REQUIRED,
    ),
    Rule(
        field="producers.replicas",
        cel="!has(self.queueName) || self.producers.replicas == oldSelf.producers.replicas",
        holds=None,
        must="while queueName is set: Kueue reserved quota for the pods that were requested",
        kind=FaultKind.FORBIDDEN,
    ),
)

RULES: tuple[Rule, ...] = (
    *(*_CONSUMERS, *_BATCH, *_ALGORITHM, *REWARD_RULES, *_PRODUCERS, *_CLUSTER),
    *ENVIRONMENT_RULES,
    *POD_RULES,
)


def broken_rules(spec: "GRPOJobSpec") -> list[Fault]:
    """All faults across the fields of a spec whose single fields are valid."""
    faults = [_fault(rule, spec) for rule in RULES if rule.holds and not rule.holds(spec)]
    names = [variable.name for variable in spec.env]
    # In a cluster the API server checks it: the list is a map by name.
    repeated = sorted({name for name in names if names.count(name) > 1})
    return faults + [invalid("spec.env", name, "must be unique") for name in repeated]


def _fault(rule: Rule, spec: "GRPOJobSpec") -> Fault:
    numbers = (operand.value(spec) for operand in rule.operands)
    must = rule.must.format(*(f"{n:g}" if isinstance(n, float) else n for n in numbers))
    return Fault(f"spec.{rule.field}", field_value(spec, rule.field), must, rule.kind, rule.reads)
