"""How training processes divide the work, and which Booster plugin does it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from grpo_trainer.spec import Dtype


@dataclass(frozen=True, slots=True)
class ParallelDims:
    """Ranks count through tensor, then pipeline, then data-parallel groups, as in ColossalAI."""

    world: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    zero_stage: int = 0

    @property
    def data_parallel(self) -> int:
        return self.world // (self.tensor_parallel * self.pipeline_parallel)

    def data_index(self, rank: int) -> int:
        """Which data-parallel shard a rank trains on."""
        return rank // (self.tensor_parallel * self.pipeline_parallel)

    def stage(self, rank: int) -> int:
        """Which pipeline stage a rank holds."""
        return rank // self.tensor_parallel % self.pipeline_parallel

    def tensor_index(self, rank: int) -> int:
        return rank % self.tensor_parallel

    def exports(self, rank: int) -> bool:
        """Whether a rank hands out the weights of its stage."""
        return self.data_index(rank) == 0 and self.tensor_index(rank) == 0

    def reports(self, rank: int) -> bool:
        """Whether a rank has loss sums: one of the last stage in each data-parallel group."""
        return self.tensor_index(rank) == 0 and self.stage(rank) == self.pipeline_parallel - 1


class PluginKind(StrEnum):
    DDP = "ddp"
    ZERO = "zero"
    HYBRID = "hybrid"


def plugin_kind(layout: ParallelDims, dtype: Dtype) -> PluginKind:
    """Choose the plugin that keeps fp32 master weights where the working ones are bfloat16."""
    if layout.tensor_parallel > 1 or layout.pipeline_parallel > 1:
        return PluginKind.HYBRID
    if layout.zero_stage > 0:
        return PluginKind.ZERO
    return PluginKind.DDP if dtype is Dtype.FLOAT32 else PluginKind.HYBRID


def make_plugin(
    layout: ParallelDims, dtype: Dtype, *, microbatch: int, on_cuda: bool, max_norm: float
) -> Any:
    """Build the Booster plugin; torch.distributed must be up."""
    from colossalai.booster.plugin import (
        HybridParallelPlugin,
        LowLevelZeroPlugin,
        TorchDDPPlugin,
    )

    precision = "fp32" if dtype is Dtype.FLOAT32 else "bf16"
    kind = plugin_kind(layout, dtype)
    if kind is PluginKind.DDP:
        return TorchDDPPlugin()
    if kind is PluginKind.ZERO:
        return LowLevelZeroPlugin(
            stage=layout.zero_stage,
            precision=precision,
            max_norm=max_norm,
            overlap_communication=on_cuda,
        )
    pipeline: dict[str, Any] = {}
    if layout.pipeline_parallel > 1:
        # Sequence lengths differ from step to step, so shapes are sent along every time.
        pipeline = {"microbatch_size": microbatch, "enable_metadata_cache": False}
    return HybridParallelPlugin(
        tp_size=layout.tensor_parallel,
        pp_size=layout.pipeline_parallel,
        zero_stage=layout.zero_stage,
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
