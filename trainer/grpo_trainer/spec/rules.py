"""Rules across fields, each in one record: the check, the same check in CEL, and the message.

`broken_rules` applies the checks here; the CustomResourceDefinition carries their CEL, so that the
API server refuses the same manifests with the same words.
"""

from typing import TYPE_CHECKING

from .cluster import Backend, ConsumerBackend, WeightUpdate
from .environment_rules import ENVIRONMENT_RULES
from .faults import Fault, FaultKind, invalid
from .kubernetes import quantity_value
from .metadata_rules import METADATA_RULES
from .pod_rules import POD_RULES
from .reward_rules import REWARD_RULES
from .rule import Operand, Rule, at_most, field, field_value, less_than, multiple
from .training import Dtype

if TYPE_CHECKING:
    from .job import GRPOJobSpec


_PROCESSES = Operand(
    "self.consumers.replicas * self.consumers.processesPerReplica",
    lambda spec: spec.consumer_processes,
)
_PARALLEL = Operand(
    "self.consumers.tensorParallelSize * self.consumers.pipelineParallelSize",
    lambda spec: spec.consumers.tensor_parallel_size * spec.consumers.pipeline_parallel_size,
)
_LONGEST_SAMPLE = Operand(
    "(self.sampling.maxPromptTokens + (has(self.environment) ? self.environment.maxEpisodeTokens "
    ": self.sampling.maxNewTokens))",
    lambda spec: spec.longest_sample,
)
_MINIBATCH_SAMPLES = Operand(
    "self.batch.trainMinibatchSize * self.sampling.numGenerations",
    lambda spec: spec.batch.train_minibatch_size * spec.sampling.num_generations,
)

_COLOSSALAI = "self.consumers.backend == 'colossalai'"


def _fsdp(spec: "GRPOJobSpec") -> bool:
    return spec.consumers.backend is ConsumerBackend.FSDP


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
        cel=f"{_COLOSSALAI} || self.consumers.zeroStage == 0",
        holds=lambda s: not _fsdp(s) or s.consumers.zero_stage == 0,
        must="must be 0 with backend fsdp, which shards parameters, gradients and optimizer state "
        "over all processes",
    ),
    Rule(
        field="consumers.pipelineParallelSize",
        cel=f"{_COLOSSALAI} || self.consumers.pipelineParallelSize == 1",
        holds=lambda s: not _fsdp(s) or s.consumers.pipeline_parallel_size == 1,
        must="must be 1 with backend fsdp; use tensorParallelSize, or backend: colossalai",
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
    multiple("batch.trainBatchSize", field("batch.trainMinibatchSize"), "trainMinibatchSize ({})"),
    multiple(
        "batch.inferenceBatchSize",
        field("batch.inferenceMicrobatchSize"),
        "inferenceMicrobatchSize ({})",
    ),
    at_most(
        "batch.trainMicrobatchSize",
        _MINIBATCH_SAMPLES,
        "trainMinibatchSize x numGenerations ({}) samples",
    ),
    Rule(
        field="batch.trainMicrobatchTokens",
        cel="!has(self.batch.trainMicrobatchTokens) || "
        f"self.batch.trainMicrobatchTokens >= {_LONGEST_SAMPLE.cel}",
        holds=lambda s: (s.batch.train_microbatch_tokens or s.longest_sample) >= s.longest_sample,
        must="must be at least maxPromptTokens + maxNewTokens, or environment.maxEpisodeTokens, "
        "({}), the longest sample",
        operands=(_LONGEST_SAMPLE,),
    ),
)


_ALGORITHM = (
    at_most(
        "algorithm.optimizer.minLearningRate",
        field("algorithm.learningRate"),
        "algorithm.learningRate ({})",
        given="algorithm.optimizer.minLearningRate",
    ),
    less_than(
        "algorithm.optimizer.warmupSteps", field("maxSteps"), "maxSteps ({})", given="maxSteps"
    ),
    less_than(
        "algorithm.dynamicSampling.minAccuracy",
        field("algorithm.dynamicSampling.maxAccuracy"),
        "maxAccuracy ({})",
    ),
    at_most(
        "algorithm.overlong.bufferTokens",
        field("sampling.maxNewTokens"),
        "sampling.maxNewTokens ({})",
        given="algorithm.overlong.bufferTokens",
    ),
)

_SCALE = "self.producers.autoscale"


def _replicas_in_range(spec: "GRPOJobSpec") -> bool:
    scale = spec.producers.autoscale
    if scale is None or scale.min_replicas > scale.max_replicas:
        return True
    return scale.min_replicas <= spec.producers.replicas <= scale.max_replicas


_PRODUCERS = (
    at_most("producers.minAvailable", field("producers.replicas"), "replicas ({})"),
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
    at_most(
        "producers.autoscale.minReplicas",
        field("producers.autoscale.maxReplicas"),
        "maxReplicas ({})",
        given="producers.autoscale",
    ),
    Rule(
        field="producers.replicas",
        cel=f"!has({_SCALE}) || {_SCALE}.minReplicas > {_SCALE}.maxReplicas || "
        f"({_SCALE}.minReplicas <= self.producers.replicas && "
        f"self.producers.replicas <= {_SCALE}.maxReplicas)",
        holds=_replicas_in_range,
        must="must be within autoscale's range ({} to {})",
        operands=(
            field("producers.autoscale.minReplicas"),
            field("producers.autoscale.maxReplicas"),
        ),
    ),
    at_most(
        "producers.minAvailable",
        field("producers.autoscale.minReplicas"),
        "autoscale.minReplicas ({})",
        given="producers.autoscale",
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
        field="storage.size",
        cel="!has(self.storage.size) || quantity(self.storage.size).isGreaterThan(quantity('0'))",
        holds=lambda s: (
            s.storage is None or s.storage.size is None or quantity_value(s.storage.size) > 0
        ),
        must="must be greater than 0",
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
        cel="!has(self.queueName) || oldSelf.suspend || "
        "self.producers.replicas == oldSelf.producers.replicas",
        holds=None,
        must="while queueName is set and the job is not suspended: Kueue reserved quota for the "
        "pods that were requested",
        kind=FaultKind.FORBIDDEN,
    ),
)

RULES: tuple[Rule, ...] = (
    *(*_CONSUMERS, *_BATCH, *_ALGORITHM, *REWARD_RULES, *_PRODUCERS, *_CLUSTER),
    *ENVIRONMENT_RULES,
    *POD_RULES,
    *METADATA_RULES,
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
