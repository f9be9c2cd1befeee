"""Memory of one training process, as ColossalAI's Booster and the training step allocate it."""

from dataclasses import dataclass

from ..algorithm.chunks import chunk_rows
from .architecture import Architecture

FP32 = 4
LOGIT_COPIES = 4
"""fp32 copies of a chunk of logits: scaled, log-probabilities, probabilities, gradient."""
CUDA_BYTES = 2 << 30
"""CUDA context, library workspaces and fragmentation: an allowance, not computed."""


@dataclass(frozen=True, slots=True)
class TrainingLayout:
    """How training is split and what a micro-batch is."""

    processes: int
    tensor_parallel: int
    pipeline_parallel: int
    zero_stage: int
    weight_bytes: int
    """Bytes of a weight in working precision: 2 or 4."""
    gradient_checkpointing: bool
    reference: bool
    """Whether a reference policy is kept."""
    microbatch_tokens: int
    """Tokens of the largest micro-batch, padding included."""
    sharded: bool = False
    """Whether FSDP shards weights and their fp32 optimizer state over the data-parallel ranks."""

    @property
    def data_parallel(self) -> int:
        return self.processes // (self.tensor_parallel * self.pipeline_parallel)

    @property
    def shards(self) -> int:
        """Ranks that share the optimizer's state."""
        return self.data_parallel if self.zero_stage > 0 or self.sharded else 1

    @property
    def is_ddp(self) -> bool:
        """Whether torch's DDP trains the model: in fp32 without any kind of sharding."""
        split = self.tensor_parallel > 1 or self.pipeline_parallel > 1
        whole = self.zero_stage == 0 and not self.sharded
        return self.weight_bytes == FP32 and whole and not split

    @property
    def has_masters(self) -> bool:
        """Whether there are fp32 master weights in addition to the working ones.

        Plain DDP in fp32 has none; ZeRO always copies its shard; the shards of FSDP are fp32.
        """
        return (self.weight_bytes != FP32 or self.zero_stage > 0) and not self.sharded


@dataclass(frozen=True, slots=True)
class ConsumerMemory:
    """Bytes of the largest rank, by what they hold."""

    weights: int
    gradients: int
    """In working precision; ZeRO-2 keeps the shard of the rank only."""
    masters: int
    """fp32 copies of the weights that the optimizer updates."""
    moments: int
    """Adam's two, in fp32."""
    reference: int
    buckets: int
    """Communication buffers of DDP, a second copy of the gradients; of FSDP, the whole layers that
    are gathered at one time."""
    activations: int
    """During forward and backward pass."""
    logits: int
    """During forward and backward pass."""
    update: int
    """fp32 gradients during the optimizer step; activations and logits are free by then."""
    overhead: int

    @property
    def static(self) -> int:
        """Bytes that are held all the time."""
        trained = self.weights + self.gradients + self.masters + self.moments
        return trained + self.reference + self.buckets + self.overhead

    @property
    def peak(self) -> int:
        """The larger of the two phases of a step."""
        return self.static + max(self.activations + self.logits, self.update)


def consumer_memory(
    model: Architecture, layout: TrainingLayout, *, on_gpu: bool = True
) -> ConsumerMemory:
    """Memory of the largest training process."""
    held = model.stage_parameters(layout.tensor_parallel, layout.pipeline_parallel)
    shard = -(-held // layout.shards)
    working = layout.weight_bytes
    masters = shard * FP32 if layout.has_masters else 0
    gradients = shard if layout.zero_stage == 2 else held
    weights = shard * FP32 if layout.sharded else held * working
    frozen = shard if layout.sharded else held
    # FSDP adds up whole fp32 gradients over the micro-batches, and reduces them with the last one.
    return ConsumerMemory(
        weights=weights,
        gradients=gradients * (FP32 if layout.sharded else working),
        masters=masters,
        moments=2 * shard * FP32,
        reference=frozen * working if layout.reference else 0,
        buckets=_gathered(model, layout) if layout.sharded else held * working * layout.is_ddp,
        activations=_activations(model, layout),
        logits=_logits(model, layout),
        update=shard * FP32 if working != FP32 and not layout.sharded else 0,
        overhead=CUDA_BYTES if on_gpu else 0,
    )


def _gathered(model: Architecture, layout: TrainingLayout) -> int:
    """Whole weights of FSDP at one time: embedding and head, and two layers, one of them ahead."""
    layer = -(-model.layer_matrices // layout.tensor_parallel) + model.layer_vectors
    ends = -(-(model.embedding + model.head) // layout.tensor_parallel) + model.hidden
    return (ends + 2 * layer) * layout.weight_bytes


def layer_activations(model: Architecture, weight_bytes: int, tensor_parallel: int = 1) -> int:
    """Bytes per token that one layer keeps for its backward pass, without attention matrices.

    Two norms keep their input in fp32, the normalized input and the output; two residuals; queries,
    keys and values repeated to all heads, and the attention output; four tensors of the gated
    feed-forward layer. Compare https://arxiv.org/abs/2205.05198, section 4. Attention kernels that
    do not store the attention matrix (flash, memory-efficient) are assumed.
    """
    norms = 2 * (FP32 + 2 * weight_bytes) * model.hidden
    residuals = 2 * weight_bytes * model.hidden
    attention = 4 * weight_bytes * model.heads * model.head_size
    feed_forward = 4 * weight_bytes * model.intermediate
    return norms + residuals + (attention + feed_forward) // tensor_parallel


def _activations(model: Architecture, layout: TrainingLayout) -> int:
    """With checkpointing each layer keeps its input, and one layer at a time is computed again.

    The first stage of a pipeline (1F1B) holds the micro-batches of all stages.
    """
    tokens = layout.microbatch_tokens
    layers = -(-model.layers // layout.pipeline_parallel)
    layer = layer_activations(model, layout.weight_bytes, layout.tensor_parallel)
    if not layout.gradient_checkpointing:
        return layout.pipeline_parallel * layers * tokens * layer
    kept = layout.pipeline_parallel * layers * model.hidden * layout.weight_bytes
    return tokens * (kept + layer)


def _logits(model: Architecture, layout: TrainingLayout) -> int:
    """One chunk of logits, and gradients of the projection: the sum over chunks and the newest.

    A chunk is gathered over the tensor-parallel group: each rank has the whole vocabulary.
    """
    tokens, working = layout.microbatch_tokens, layout.weight_bytes
    rows = min(tokens, chunk_rows(model.vocabulary))
    chunk = rows * model.vocabulary * (FP32 * LOGIT_COPIES + working)
    projection = -(-(model.head or model.embedding) // layout.tensor_parallel)
    return chunk + (2 if rows < tokens else 1) * projection * working
