"""The forecast of a consumer's memory, against the tensors that ColossalAI's processes hold."""

import json
from pathlib import Path

import pytest

from grpo_trainer.consumer.parallel_dims import ParallelDims
from grpo_trainer.planning import read_architecture
from grpo_trainer.planning.consumers import TrainingLayout, consumer_memory
from grpo_trainer.spec import Dtype
from support.layouts import job, options, run, steps
from support.models import save_random_model

LAYOUTS = {
    "data parallel in fp32": (ParallelDims(2), Dtype.FLOAT32),
    "data parallel in bf16": (ParallelDims(2), Dtype.BFLOAT16),
    "ZeRO 1": (ParallelDims(2, zero_stage=1), Dtype.BFLOAT16),
    "ZeRO 2": (ParallelDims(2, zero_stage=2), Dtype.BFLOAT16),
    "ZeRO 2 in fp32": (ParallelDims(2, zero_stage=2), Dtype.FLOAT32),
    "tensor parallel": (ParallelDims(2, tensor_parallel=2), Dtype.BFLOAT16),
    "pipeline parallel": (ParallelDims(2, pipeline_parallel=2), Dtype.BFLOAT16),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def measured(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """Bytes of the rank that holds the most, by layout."""
    directory, jobs = tmp_path_factory.mktemp("layouts"), {}
    for name, (layout, dtype) in LAYOUTS.items():
        chosen = options(model, layout, dtype=dtype)
        jobs[name] = job(directory, name, chosen, steps=steps(chosen, last=1))
    run(list(jobs.values()), world=2)
    return {name: largest(of_layout.directory) for name, of_layout in jobs.items()}


def largest(directory: Path) -> dict[str, int]:
    ranks = [json.loads(path.read_text()) for path in directory.glob("memory-*.json")]
    return {part: max(rank[part] for rank in ranks) for part in ranks[0]}


@pytest.mark.parametrize("name", LAYOUTS)
def test_weights_masters_and_moments_are_forecast_within_2_percent(model, measured, name):
    dims, dtype = LAYOUTS[name]
    forecast = consumer_memory(
        read_architecture(model, str(model)),
        TrainingLayout(
            processes=dims.world,
            tensor_parallel=dims.tensor_parallel,
            pipeline_parallel=dims.pipeline_parallel,
            zero_stage=dims.zero_stage,
            weight_bytes=4 if dtype is Dtype.FLOAT32 else 2,
            gradient_checkpointing=False,
            reference=False,
            microbatch_tokens=1,
        ),
    )
    found = {part: getattr(forecast, part) for part in ("weights", "masters", "moments")}
    assert found == pytest.approx(measured[name], rel=0.02)
