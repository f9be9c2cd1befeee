"""Rules across fields. Each is a pure function of the spec that yields the faults it finds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .cluster import Backend, WeightUpdate
from .training import Dtype, RewardType

if TYPE_CHECKING:
    from .job import GRPOJobSpec


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a manifest: where, what it is, and what would be legal."""

    path: str
    value: Any
    legal: str

    def __str__(self) -> str:
        return f"{self.path}: {self.value!r} is not legal: {self.legal}"


def _parallel_sizes(spec: "GRPOJobSpec") -> Iterator[Fault]:
    c = spec.consumers
    parallel = c.tensor_parallel_size * c.pipeline_parallel_size
    if spec.consumer_processes % parallel:
        yield Fault(
            "spec.consumers.processesPerReplica",
            c.processes_per_replica,
            f"replicas x processesPerReplica ({spec.consumer_processes}) must be a multiple of "
            f"tensorParallelSize x pipelineParallelSize ({parallel})",
        )
    if c.pipeline_parallel_size > 1 and c.zero_stage == 2:
        yield Fault(
            "spec.consumers.zeroStage",
            c.zero_stage,
            "0 or 1 with pipelineParallelSize > 1: a pipeline adds to gradients that stage 2 frees",
        )
    if parallel > 1 and c.zero_stage > 0 and spec.model.dtype is Dtype.FLOAT32:
        yield Fault(
            "spec.consumers.zeroStage",
            c.zero_stage,
            "0 with float32 and tensor or pipeline parallelism, or set model.dtype: bfloat16",
        )


def _batch_relations(spec: "GRPOJobSpec") -> Iterator[Fault]:
    b = spec.batch
    if b.train_batch_size % b.train_minibatch_size:
        yield Fault(
            "spec.batch.trainBatchSize",
            b.train_batch_size,
            f"a multiple of trainMinibatchSize ({b.train_minibatch_size})",
        )
    if b.inference_batch_size % b.inference_microbatch_size:
        yield Fault(
            "spec.batch.inferenceBatchSize",
            b.inference_batch_size,
            f"a multiple of inferenceMicrobatchSize ({b.inference_microbatch_size})",
        )
    samples = b.train_minibatch_size * spec.sampling.num_generations
    if b.train_microbatch_size > samples:
        yield Fault(
            "spec.batch.trainMicrobatchSize",
            b.train_microbatch_size,
            f"at most trainMinibatchSize x numGenerations ({samples}) samples",
        )


def _algorithm(spec: "GRPOJobSpec") -> Iterator[Fault]:
    dynamic = spec.algorithm.dynamic_sampling
    if dynamic.min_accuracy >= dynamic.max_accuracy:
        yield Fault(
            "spec.algorithm.dynamicSampling.minAccuracy",
            dynamic.min_accuracy,
            f"less than maxAccuracy ({dynamic.max_accuracy})",
        )
    tokens = spec.algorithm.overlong.buffer_tokens
    if tokens is not None and tokens > spec.sampling.max_new_tokens:
        yield Fault(
            "spec.algorithm.overlong.bufferTokens",
            tokens,
            f"at most sampling.maxNewTokens ({spec.sampling.max_new_tokens})",
        )


def _reward(spec: "GRPOJobSpec") -> Iterator[Fault]:
    reward = spec.reward
    if reward.type is RewardType.CUSTOM and reward.custom is None:
        yield Fault("spec.reward.custom", None, "type custom needs {module, function}")
    if reward.type is not RewardType.CUSTOM and reward.custom is not None:
        yield Fault("spec.reward.type", str(reward.type), "custom, when reward.custom is given")


def _producers(spec: "GRPOJobSpec") -> Iterator[Fault]:
    p = spec.producers
    if p.min_available > p.replicas:
        yield Fault(
            "spec.producers.minAvailable", p.min_available, f"at most replicas ({p.replicas})"
        )
    if p.tensor_parallel_size > 1 and p.backend is Backend.TRANSFORMERS:
        yield Fault(
            "spec.producers.tensorParallelSize", p.tensor_parallel_size, "1, or set backend: vllm"
        )
    if p.weight_update is WeightUpdate.IN_FLIGHT and p.backend is Backend.TRANSFORMERS:
        yield Fault(
            "spec.producers.weightUpdate",
            str(p.weight_update),
            "betweenRequests, or set backend: vllm",
        )


def _autoscale(spec: "GRPOJobSpec") -> Iterator[Fault]:
    p, scale = spec.producers, spec.producers.autoscale
    if scale is None:
        return
    low, high = scale.min_replicas, scale.max_replicas
    if low > high:
        yield Fault("spec.producers.autoscale.minReplicas", low, f"at most maxReplicas ({high})")
    elif not low <= p.replicas <= high:
        yield Fault(
            "spec.producers.replicas", p.replicas, f"within autoscale's range ({low} to {high})"
        )
    if p.min_available > low:
        yield Fault(
            "spec.producers.minAvailable",
            p.min_available,
            f"at most autoscale.minReplicas ({low})",
        )
    if spec.queue_name is not None:
        yield Fault(
            "spec.queueName",
            spec.queue_name,
            "absent with producers.autoscale: Kueue reserves quota for a fixed number of pods",
        )


def _storage(spec: "GRPOJobSpec") -> Iterator[Fault]:
    storage = spec.storage
    if storage is not None and (storage.claim_name is None) == (storage.size is None):
        given = {"claimName": storage.claim_name, "size": storage.size}
        yield Fault("spec.storage", given, "exactly one of claimName and size")


def _environment(spec: "GRPOJobSpec") -> Iterator[Fault]:
    names = [variable.name for variable in spec.env]
    for name in sorted({n for n in names if names.count(n) > 1}):
        yield Fault("spec.env", name, "each name once")


RULES: tuple[Callable[["GRPOJobSpec"], Iterator[Fault]], ...] = (
    _parallel_sizes,
    _batch_relations,
    _algorithm,
    _reward,
    _producers,
    _autoscale,
    _storage,
    _environment,
)


def broken_rules(spec: "GRPOJobSpec") -> list[Fault]:
    """All faults across the fields of a spec whose single fields are legal."""
    return [fault for rule in RULES for fault in rule(spec)]
