"""Training by FSDP2 against one process of ColossalAI, in another environment.

Aspects: layouts (data and tensor parallel), micro-batches, activation checkpointing and a tied head
follow the same path; sharding divides the state; gradients that are not finite change nothing; a
resumed run continues exactly, also on other numbers of ranks.
"""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from grpo_trainer.algorithm.totals import LossSums
from grpo_trainer.consumer.parallel_dims import ParallelDims
from grpo_trainer.spec import ConsumerBackend, Dtype, LossAggregation
from support.layouts import departure, job, memory, memory_forecast, options, run, steps, weights
from support.models import save_random_model

ONE = ParallelDims(1, sharded_parameters=True)
TWO = ParallelDims(2, sharded_parameters=True)
TENSOR = ParallelDims(2, tensor_parallel=2, sharded_parameters=True)
PATHS = ("fsdp-1", "fsdp-2", "tensor-parallel", "checkpointing", "microbatch-1", "microbatch-7")


def fsdp(model: Path, dims: ParallelDims, **changes):
    return options(model, dims, backend=ConsumerBackend.FSDP, **changes)


def results(directory: Path, rank: int = 0) -> list[dict]:
    return json.loads((directory / f"result-{rank}.json").read_text())


def difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name].float() - b[name].float()).abs().max()) for name in a)


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("tied"), tied=True)


@pytest.fixture(scope="module")
def one(model, reference, tied, python, tmp_path_factory) -> Path:
    """Paths of one rank."""
    tmp = tmp_path_factory.mktemp("one")
    kl = replace(options(model).algorithm, kl_coefficient=0.1)
    by_token = replace(options(tied).algorithm, loss_aggregation=LossAggregation.TOKEN)
    whole = fsdp(model, ONE, algorithm=kl, reference_path=str(reference))
    jobs = [
        job(tmp, "fsdp 1", whole),
        job(tmp, "fsdp 1 half", whole, steps=steps(whole, last=1), save=True),
        job(tmp, "tied", fsdp(tied, ONE, algorithm=by_token)),
        job(tmp, "bf16", fsdp(model, ONE, dtype=Dtype.BFLOAT16)),
    ]
    run(jobs, 1, python)
    return tmp


@pytest.fixture(scope="module")
def two(model, reference, tied, python, tmp_path_factory) -> Path:
    """Paths of two ranks."""
    tmp = tmp_path_factory.mktemp("two")
    kl = replace(options(model).algorithm, kl_coefficient=0.1)
    by_token = replace(options(tied).algorithm, loss_aggregation=LossAggregation.TOKEN)
    whole = fsdp(model, TWO, algorithm=kl, reference_path=str(reference))
    bf16 = fsdp(model, TWO, dtype=Dtype.BFLOAT16)
    first, _, third = steps(bf16)
    split = replace(whole, dims=TENSOR)
    jobs = [
        job(tmp, "fsdp 2", whole),
        job(tmp, "tensor parallel", split),
        job(tmp, "checkpointing", replace(whole, gradient_checkpointing=True)),
        job(tmp, "microbatch 1", replace(whole, microbatch=1)),
        job(tmp, "microbatch 7", replace(whole, microbatch=7)),
        job(tmp, "tied", fsdp(tied, TWO, algorithm=by_token)),
        job(tmp, "bf16", bf16),
        job(tmp, "bf16 checkpointing", replace(bf16, gradient_checkpointing=True)),
        job(tmp, "bf16 half", bf16, steps=steps(bf16, last=1), save=True),
        job(tmp, "poisoned", bf16, poisoned_step=1),
        job(tmp, "without", bf16, steps=(first, third)),
        job(tmp, "fsdp 2 half", whole, steps=steps(whole, last=1), save=True),
        job(tmp, "tensor parallel half", split, steps=steps(split, last=1), save=True),
    ]
    run(jobs, 2, python)
    return tmp


@pytest.mark.parametrize(("name", "dtype"), [("fsdp-2", Dtype.FLOAT32), ("bf16", Dtype.BFLOAT16)])
def test_weights_and_moments_are_forecast_within_2_percent(model, two, name, dtype):
    assert memory_forecast(model, TWO, dtype) == pytest.approx(memory(two / name), rel=0.02)


@pytest.fixture(scope="module")
def resumed(model, reference, one, two, python, tmp_path_factory) -> Path:
    """Other processes that resume where the first halves stopped."""
    tmp = tmp_path_factory.mktemp("resumed")
    kl = replace(options(model).algorithm, kl_coefficient=0.1)

    def rest(name: str, half: Path, dims: ParallelDims, **changes):
        start = tmp / f"start-{name.replace(' ', '-')}"
        shutil.copytree(model, start)
        shutil.copy(half / "stage-0.safetensors", start / "model.safetensors")
        chosen = fsdp(start, dims, **changes)
        return job(tmp, name, chosen, steps=steps(chosen, first=1), load=half)

    def with_reference(name: str, half: Path, dims: ParallelDims):
        return rest(name, half, dims, algorithm=kl, reference_path=str(reference))

    run([with_reference("2 on 1", two / "fsdp-2-half", ONE)], 1, python)
    run(
        [
            rest("2 on 2", two / "bf16-half", TWO, dtype=Dtype.BFLOAT16),
            with_reference("1 on 2", one / "fsdp-1-half", TWO),
            with_reference("tensor parallel on 2", two / "tensor-parallel-half", TWO),
        ],
        2,
        python,
    )
    return tmp


def path_of(name: str, one: Path, two: Path) -> Path:
    return (one if name == "fsdp-1" else two) / name


@pytest.mark.parametrize("name", PATHS)
def test_every_path_is_that_of_one_process(model, plain, one, two, name):
    directory = path_of(name, one, two)
    assert departure(directory, plain / "whole", model) < 1e-3
    norms = [step["norm"] for step in results(directory)]
    assert norms == pytest.approx([s["norm"] for s in results(plain / "whole")], rel=1e-3)


@pytest.mark.parametrize("name", ["fsdp-2", "tensor-parallel"])
def test_the_loss_sums_of_the_reporting_ranks_add_up(plain, two, name):
    for step, whole in enumerate(results(plain / "whole")):
        parts = [results(two / name, rank)[step]["sums"] for rank in range(2)]
        total = asdict(sum((LossSums(**p) for p in parts if p is not None), LossSums()))
        assert total == pytest.approx(whole["sums"], rel=1e-3, abs=1e-5)


def test_a_tied_head_follows_the_same_path_on_one_rank_and_on_two(tied, one, two):
    assert "lm_head.weight" not in weights(two / "tied")
    assert departure(two / "tied", one / "tied", tied) < 1e-3


@pytest.mark.parametrize("name", ["bf16", "bf16-checkpointing"])
def test_bfloat16_stays_close_to_the_path(plain, two, name):
    exported = weights(two / name)
    assert {tensor.dtype for tensor in exported.values()} == {torch.bfloat16}
    assert difference(exported, weights(plain / "without-reference")) < 2e-2


def test_two_ranks_hold_half_of_the_fp32_state_each(one, two):
    whole = json.loads((one / "bf16" / "memory-0.json").read_text())
    parts = [json.loads((two / "bf16" / f"memory-{rank}.json").read_text()) for rank in range(2)]
    for kind in ("weights", "moments"):
        assert [part[kind] for part in parts] == pytest.approx([whole[kind] / 2] * 2, rel=0.02)
    assert whole["moments"] == 2 * whole["weights"]


def test_a_step_with_a_gradient_that_is_not_finite_changes_nothing(two):
    for rank in range(2):
        found = [step["skipped"] for step in results(two / "poisoned", rank)]
        assert found == [False, True, False]
    assert difference(weights(two / "poisoned"), weights(two / "without")) == 0


def test_a_run_that_resumes_on_as_many_ranks_ends_with_the_very_same_weights(two, resumed):
    assert difference(weights(resumed / "2-on-2"), weights(two / "bf16")) == 0


@pytest.mark.parametrize("name", ["2-on-1", "1-on-2", "tensor-parallel-on-2"])
def test_a_run_resumes_in_another_layout(model, plain, resumed, name):
    assert departure(resumed / name, plain / "whole", model) < 1e-3


def test_a_state_of_another_backend_is_refused_with_what_can_be_done(
    model, plain, python, tmp_path
):
    load = plain / "whole"
    with pytest.raises(AssertionError, match=r"has no state that backend fsdp can read"):
        run([job(tmp_path, "other", fsdp(model, ONE), load=load)], 1, python)
