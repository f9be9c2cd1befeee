"""The forecast of a spec: all memory of a run in one record."""

from dataclasses import dataclass

from ..spec import (
    Backend,
    ConsumerBackend,
    Dtype,
    GRPOJobSpec,
    WeightTransport,
    resolve_algorithm,
)
from ..spec.cluster import CPU
from .architecture import Architecture
from .consumers import FP32, ConsumerMemory, TrainingLayout, consumer_memory
from .producers import GenerationLayout, ProducerMemory, producer_memory
from .volume import (
    checkpoint_bytes,
    loading_bytes,
    object_store_bytes,
    volume_bytes,
    weight_buffer_bytes,
)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Bytes that a run needs."""

    parameters: int
    consumer: ConsumerMemory
    """Of one training process."""
    producer: ProducerMemory
    """Of one inference process."""
    loading: int
    """Host memory of a consumer pod while models load."""
    weight_buffer: int
    """Host memory of the first consumers for the weights to publish."""
    mirror: int
    """Host memory of a producer for the weights that deltas are applied to."""
    object_store: int
    """Host memory of a node for weight versions on their way."""
    checkpoint: int
    """One checkpoint on the volume."""
    volume: int
    """All checkpoints on the volume."""


def weight_bytes(spec: GRPOJobSpec) -> int:
    """Bytes of a weight in working precision."""
    return FP32 if spec.model.dtype is Dtype.FLOAT32 else 2


def training_layout(spec: GRPOJobSpec) -> TrainingLayout:
    """The part of a spec that consumer memory depends on."""
    consumers = spec.consumers
    return TrainingLayout(
        processes=spec.consumer_processes,
        tensor_parallel=consumers.tensor_parallel_size,
        pipeline_parallel=consumers.pipeline_parallel_size,
        zero_stage=consumers.zero_stage,
        weight_bytes=weight_bytes(spec),
        gradient_checkpointing=spec.model.gradient_checkpointing,
        reference=resolve_algorithm(spec).kl_coefficient > 0,
        microbatch_tokens=spec.batch.train_microbatch_tokens
        or spec.batch.train_microbatch_size * spec.longest_sample,
        sharded=consumers.backend is ConsumerBackend.FSDP,
    )


def generation_layout(spec: GRPOJobSpec) -> GenerationLayout:
    """The part of a spec that producer memory depends on."""
    return GenerationLayout(
        tensor_parallel=spec.producers.tensor_parallel_size,
        weight_bytes=weight_bytes(spec),
        tokens=spec.longest_sample,
        completions=spec.batch.inference_microbatch_size * spec.sampling.num_generations,
        paged=spec.producers.backend is Backend.VLLM,
    )


def forecast(spec: GRPOJobSpec, model: Architecture) -> Forecast:
    """The memory of a run of this spec with this model."""
    layout = training_layout(spec)
    checkpoint = checkpoint_bytes(model, layout)
    buffer = weight_buffer_bytes(model, layout.weight_bytes)
    deltas = spec.producers.weight_transport is WeightTransport.DELTA
    return Forecast(
        parameters=model.parameters,
        consumer=consumer_memory(model, layout, on_gpu=spec.consumers.accelerator != CPU),
        producer=producer_memory(
            model, generation_layout(spec), on_gpu=spec.producers.accelerator != CPU
        ),
        # With FSDP each process reads its shards.
        loading=loading_bytes(model, 1 if layout.sharded else spec.consumers.processes_per_replica),
        weight_buffer=(2 if deltas else 1) * buffer,
        mirror=buffer if deltas else 0,
        object_store=object_store_bytes(model, layout.weight_bytes),
        checkpoint=checkpoint,
        volume=volume_bytes(checkpoint, spec.checkpoint.keep_last),
    )
