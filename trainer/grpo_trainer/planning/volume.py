"""Bytes on hosts and on the volume."""

from .architecture import Architecture
from .consumers import FP32, TrainingLayout

OBJECT_STORE_VERSIONS = 3
"""Weight versions in the object store at once: the newest, one on its way, one under evaluation."""


def checkpoint_bytes(model: Architecture, layout: TrainingLayout) -> int:
    """The model in working precision, and what each rank's optimizer holds.

    Without ZeRO every data-parallel rank writes the same state.
    """
    held = model.stage_parameters(layout.tensor_parallel, layout.pipeline_parallel)
    shard = -(-held // layout.shards)
    optimized = layout.processes * shard
    return stored_bytes(model.parameters, optimized, layout.weight_bytes, sharded=layout.sharded)


def stored_bytes(parameters: int, optimized: int, weight_bytes: int, *, sharded: bool) -> int:
    """A checkpoint's weights, and AdamW's two moments and masters, which fp32 weights lack.

    `optimized` counts a parameter once for each rank that writes optimizer state of it. The state
    of FSDP, `sharded`, always has its fp32 weights.
    """
    masters = FP32 if weight_bytes != FP32 or sharded else 0
    return parameters * weight_bytes + optimized * (2 * FP32 + masters)


def volume_bytes(checkpoint: int, keep_last: int) -> int:
    """The checkpoints that are kept, and the one that is being written."""
    return (keep_last + 1) * checkpoint


def loading_bytes(model: Architecture, processes: int) -> int:
    """Host memory of a pod while its processes load the model: each one whole, in fp32."""
    return processes * model.parameters * FP32


def weight_buffer_bytes(model: Architecture, weight_bytes: int) -> int:
    """The host copy of the weights that is published, over all pipeline stages."""
    return model.parameters * weight_bytes


def object_store_bytes(model: Architecture, weight_bytes: int) -> int:
    """Versions in Ray's object store, on the nodes of consumers and producers."""
    return OBJECT_STORE_VERSIONS * model.parameters * weight_bytes
