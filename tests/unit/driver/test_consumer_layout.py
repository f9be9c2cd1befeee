"""Who does what among the training processes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.consumer.colossalai.optimizer import make_optimizer
from grpo_trainer.consumer.colossalai.plugin import PluginKind, plugin_kind
from grpo_trainer.consumer.parallel_dims import ParallelDims
from grpo_trainer.spec import Dtype, GRPOJobSpec, resolve_algorithm

layouts = st.builds(
    lambda dp, tp, pp: ParallelDims(dp * tp * pp, tensor_parallel=tp, pipeline_parallel=pp),
    *(st.integers(1, 4) for _ in range(3)),
)


@given(layouts)
def test_every_stage_is_exported_once(layout: ParallelDims) -> None:
    stages = [layout.stage(rank) for rank in range(layout.world) if layout.exports(rank)]
    assert sorted(stages) == list(range(layout.pipeline_parallel))


@given(layouts)
def test_every_data_parallel_shard_is_reported_once(layout: ParallelDims) -> None:
    shards = [layout.data_index(rank) for rank in range(layout.world) if layout.reports(rank)]
    assert sorted(shards) == list(range(layout.data_parallel))


@pytest.mark.parametrize(
    ("layout", "dtype", "kind"),
    [
        (ParallelDims(2), Dtype.FLOAT32, PluginKind.DDP),
        # Without master weights a small learning rate would move no bf16 weight.
        (ParallelDims(2), Dtype.BFLOAT16, PluginKind.HYBRID),
        (ParallelDims(2, zero_stage=2), Dtype.FLOAT32, PluginKind.ZERO),
        (ParallelDims(4, tensor_parallel=2, zero_stage=1), Dtype.BFLOAT16, PluginKind.HYBRID),
    ],
)
def test_the_plugin_follows_layout_and_precision(
    layout: ParallelDims, dtype: Dtype, kind: PluginKind
) -> None:
    assert plugin_kind(layout, dtype) is kind


def test_the_optimizer_takes_its_settings_from_the_algorithm() -> None:
    fields = {"weightDecay": 0.1, "beta1": 0.8, "beta2": 0.95}
    spec = {"algorithm": {"learningRate": 1e-3, "optimizer": fields}}
    algorithm = resolve_algorithm(GRPOJobSpec.model_validate(spec))
    (group,) = make_optimizer(torch.nn.Linear(2, 2), algorithm, on_cuda=False).param_groups
    assert (group["lr"], group["weight_decay"], group["betas"]) == (1e-3, 0.1, (0.8, 0.95))
