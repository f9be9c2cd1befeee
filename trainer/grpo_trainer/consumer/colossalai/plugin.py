"""Which Booster plugin trains a layout."""

from enum import StrEnum
from typing import Any

from grpo_trainer.spec import Dtype

from ..parallel_dims import ParallelDims


class PluginKind(StrEnum):
    DDP = "ddp"
    ZERO = "zero"
    HYBRID = "hybrid"


def plugin_kind(dims: ParallelDims, dtype: Dtype) -> PluginKind:
    """Choose the plugin that keeps fp32 master weights where the working ones are bfloat16."""
    if dims.tensor_parallel > 1 or dims.pipeline_parallel > 1:
        return PluginKind.HYBRID
    if dims.zero_stage > 0:
        return PluginKind.ZERO
    return PluginKind.DDP if dtype is Dtype.FLOAT32 else PluginKind.HYBRID


def make_plugin(
    dims: ParallelDims, dtype: Dtype, *, microbatch: int, on_cuda: bool, max_norm: float
) -> Any:
    """Build the Booster plugin; torch.distributed must be up."""
    from colossalai.booster.plugin import (
        HybridParallelPlugin,
        LowLevelZeroPlugin,
        TorchDDPPlugin,
    )

    precision = "fp32" if dtype is Dtype.FLOAT32 else "bf16"
    kind = plugin_kind(dims, dtype)
    if kind is PluginKind.DDP:
        return TorchDDPPlugin()
    if kind is PluginKind.ZERO:
        return LowLevelZeroPlugin(
            stage=dims.zero_stage,
            precision=precision,
            max_norm=max_norm,
            overlap_communication=on_cuda,
        )
    pipeline: dict[str, Any] = {}
    if dims.pipeline_parallel > 1:
        # Sequence lengths differ from step to step, so shapes are sent along every time.
        pipeline = {"microbatch_size": microbatch, "enable_metadata_cache": False}
    return HybridParallelPlugin(
        tp_size=dims.tensor_parallel,
        pp_size=dims.pipeline_parallel,
        zero_stage=dims.zero_stage,
        precision=precision,
        max_norm=max_norm,
        overlap_communication=on_cuda,
        enable_flash_attention=on_cuda and flash_attention_available(),
        **pipeline,
    )


def flash_attention_available() -> bool:
    """Whether the flash-attention kernels are installed."""
    from importlib.util import find_spec

    return find_spec("flash_attn") is not None
