"""Memory of one inference process."""

from dataclasses import dataclass

from .architecture import Architecture
from .consumers import CUDA_BYTES

VLLM_SHARE = 0.9
"""Share of the accelerator that vLLM takes; `gpu_memory_utilization` of rollout/engine.py."""


@dataclass(frozen=True, slots=True)
class GenerationLayout:
    """How completions are generated."""

    tensor_parallel: int
    weight_bytes: int
    tokens: int
    """Of the longest sequence."""
    completions: int
    """Sequences that are generated at the same time."""
    paged: bool
    """vLLM: the KV cache fills what memory is left. Else every sequence has its full length."""


@dataclass(frozen=True, slots=True)
class ProducerMemory:
    """Bytes of one rank of the engine, by what they hold."""

    weights: int
    kv_cache: int
    """All sequences at full length; with vLLM the cache of one sequence, the least it needs."""
    overhead: int
    paged: bool

    @property
    def peak(self) -> int:
        """The least memory of the accelerator that suffices."""
        needed = self.weights + self.kv_cache + self.overhead
        return round(needed / VLLM_SHARE) if self.paged else needed


def kv_cache_bytes_per_token(model: Architecture, weight_bytes: int, tensor_parallel: int) -> int:
    """Keys and values of all layers; engines split the heads over tensor-parallel ranks."""
    heads = -(-model.kv_heads // tensor_parallel)
    return 2 * model.layers * heads * model.head_size * weight_bytes


def producer_memory(
    model: Architecture, layout: GenerationLayout, *, on_gpu: bool = True
) -> ProducerMemory:
    """Memory of one rank of an inference engine."""
    per_token = kv_cache_bytes_per_token(model, layout.weight_bytes, layout.tensor_parallel)
    sequences = 1 if layout.paged else layout.completions
    return ProducerMemory(
        weights=model.stage_parameters(layout.tensor_parallel, 1) * layout.weight_bytes,
        kv_cache=per_token * layout.tokens * sequences,
        overhead=CUDA_BYTES if on_gpu else 0,
        paged=layout.paged,
    )


def concurrent_sequences(model: Architecture, layout: GenerationLayout, accelerator: int) -> int:
    """Sequences of full length whose KV cache fits into an accelerator of that many bytes."""
    memory = producer_memory(model, layout)
    share = VLLM_SHARE if layout.paged else 1.0
    free = accelerator * share - memory.weights - memory.overhead
    per_token = kv_cache_bytes_per_token(model, layout.weight_bytes, layout.tensor_parallel)
    return max(0, int(free // (per_token * layout.tokens)))
