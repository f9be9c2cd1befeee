"""Training over real ColossalAI processes on CPU.

Aspects: every layout (data, tensor, pipeline parallel, ZeRO) and every micro-batch size follows the
same path as one plain process; the reference policy takes part; exported weights load into
transformers; a saved and restored run continues exactly.
"""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from grpo_trainer.algorithm.totals import LossSums
from grpo_trainer.consumer.parallel_dims import ParallelDims
from grpo_trainer.spec import Dtype
from support.layouts import departure, job, options, run, steps, weights
from support.models import save_random_model

LAYOUTS = {
    "data parallel": ParallelDims(2),
    "ZeRO 1": ParallelDims(2, zero_stage=1),
    "ZeRO 2": ParallelDims(2, zero_stage=2),
    "tensor parallel": ParallelDims(2, tensor_parallel=2),
    "pipeline parallel": ParallelDims(2, pipeline_parallel=2),
}

BY_TOKENS = ("data parallel", "pipeline parallel")
"""Layouts that are also trained with micro-batches by tokens: of different rows and columns."""
BF16_LAYOUTS = {
    "data parallel": ParallelDims(2),
    "ZeRO 2": ParallelDims(2, zero_stage=2),
    "tensor parallel and ZeRO 1": ParallelDims(2, tensor_parallel=2, zero_stage=1),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("reference"), seed=1)


def results(directory: Path, rank: int = 0) -> list[dict]:
    return json.loads((directory / f"result-{rank}.json").read_text())


def difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name].float() - b[name].float()).abs().max()) for name in a)


@pytest.fixture(scope="module")
def plain(model: Path, reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process: the truth that every layout has to meet."""
    tmp = tmp_path_factory.mktemp("plain")
    kl = replace(options(model).algorithm, kl_coefficient=0.1)
    whole = options(model, algorithm=kl, reference_path=str(reference))
    run(
        [
            job(tmp, "whole", whole),
            job(tmp, "microbatch 1", replace(whole, microbatch=1)),
            job(tmp, "microbatch 7", replace(whole, microbatch=7)),
            job(tmp, "microbatches by tokens", whole, steps=steps(whole, tokens=30)),
            job(tmp, "checkpointing", replace(whole, gradient_checkpointing=True)),
            job(tmp, "without reference", options(model)),
        ],
        world=1,
    )
    return tmp


@pytest.fixture(scope="module")
def split(
    model: Path, reference: Path, plain: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Two processes in every layout."""
    tmp = tmp_path_factory.mktemp("split")
    kl = replace(options(model).algorithm, kl_coefficient=0.1)
    jobs = [
        job(tmp, name, options(model, layout, algorithm=kl, reference_path=str(reference)))
        for name, layout in LAYOUTS.items()
    ]
    for name in BY_TOKENS:
        chosen = options(model, LAYOUTS[name], algorithm=kl, reference_path=str(reference))
        jobs.append(job(tmp, f"{name} by tokens", chosen, steps=steps(chosen, tokens=30)))
    for name, layout in BF16_LAYOUTS.items():
        whole = options(model, layout, dtype=Dtype.BFLOAT16)
        jobs.append(job(tmp, f"bf16 {name}", whole))
        jobs.append(job(tmp, f"first half {name}", whole, steps=steps(whole, last=1), save=True))
    run(jobs, world=2)
    return tmp


@pytest.fixture(scope="module")
def resumed(model: Path, split: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Other processes that resume where the first halves stopped."""
    tmp = tmp_path_factory.mktemp("resumed")
    jobs = []
    for name, layout in BF16_LAYOUTS.items():
        half = split / f"first-half-{name.replace(' ', '-')}"
        start = tmp / f"start-{name.replace(' ', '-')}"
        shutil.copytree(model, start)
        shutil.copy(half / "stage-0.safetensors", start / "model.safetensors")
        rest = options(start, layout, dtype=Dtype.BFLOAT16)
        jobs.append(job(tmp, name, rest, steps=steps(rest, first=1), load=half))
    run(jobs, world=2)
    return tmp


def test_weights_have_moved(model: Path, plain: Path) -> None:
    before = AutoModelForCausalLM.from_pretrained(model).state_dict()
    assert difference(weights(plain / "whole"), before) > 1e-3


@pytest.mark.parametrize(
    "name", ["microbatch-1", "microbatch-7", "microbatches-by-tokens", "checkpointing"]
)
def test_the_micro_batch_does_not_change_the_path(model: Path, plain: Path, name: str) -> None:
    assert departure(plain / name, plain / "whole", model) < 1e-3


def test_the_reference_policy_changes_the_path(model: Path, plain: Path) -> None:
    assert departure(plain / "without-reference", plain / "whole", model) > 0.1


@pytest.mark.parametrize("name", [*LAYOUTS, *(f"{name} by tokens" for name in BY_TOKENS)])
def test_every_layout_follows_the_path_of_one_process(
    model: Path, plain: Path, split: Path, name: str
) -> None:
    directory = split / name.replace(" ", "-")
    assert departure(directory, plain / "whole", model) < 1e-3
    norms = [step["norm"] for step in results(directory)]
    assert norms == pytest.approx([s["norm"] for s in results(plain / "whole")], rel=1e-3)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_loss_sums_of_the_reporting_ranks_add_up(plain: Path, split: Path, name: str) -> None:
    directory = split / name.replace(" ", "-")
    for step, whole in enumerate(results(plain / "whole")):
        parts = [results(directory, rank)[step]["sums"] for rank in range(2)]
        total = asdict(sum((LossSums(**p) for p in parts if p is not None), LossSums()))
        assert total == pytest.approx(whole["sums"], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("name", BF16_LAYOUTS)
def test_bfloat16_stays_close_to_the_path(plain: Path, split: Path, name: str) -> None:
    directory = split / f"bf16-{name.replace(' ', '-')}"
    exported = weights(directory)
    assert all(tensor.dtype is torch.bfloat16 for tensor in exported.values())
    assert difference(exported, weights(plain / "without-reference")) < 2e-2


@pytest.mark.parametrize("name", BF16_LAYOUTS)
def test_a_resumed_run_ends_with_the_very_same_weights(
    split: Path, resumed: Path, name: str
) -> None:
    uninterrupted = weights(split / f"bf16-{name.replace(' ', '-')}")
    assert difference(weights(resumed / name.replace(" ", "-")), uninterrupted) == 0


def test_a_state_of_another_layout_is_refused(model: Path, split: Path, tmp_path: Path) -> None:
    half = split / "first-half-ZeRO-2"
    with pytest.raises(AssertionError, match="resume with the layout that wrote it"):
        run([job(tmp_path, "other", options(model, dtype=Dtype.BFLOAT16), load=half)], world=1)
