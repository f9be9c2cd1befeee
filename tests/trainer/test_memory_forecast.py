"""The forecast of a consumer's memory, against the tensors that ColossalAI's processes hold."""

from pathlib import Path

import pytest

from grpo_trainer.consumer.parallel_dims import ParallelDims
from grpo_trainer.spec import Dtype
from support.layouts import job, memory, memory_forecast, options, run, steps
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
    return {name: memory(of_layout.directory) for name, of_layout in jobs.items()}


@pytest.mark.parametrize("name", LAYOUTS)
def test_weights_masters_and_moments_are_forecast_within_2_percent(model, measured, name):
    assert memory_forecast(model, *LAYOUTS[name]) == pytest.approx(measured[name], rel=0.02)
