"""The resolved plan: the sizes of a run from its spec alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.spec import GRPOJobSpec, resolve_plan


def spec(**fields: Any) -> GRPOJobSpec:
    return GRPOJobSpec.model_validate(fields)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 100))
def test_global_prompts_are_the_same_for_any_number_of_processes(replicas, processes, prompts):
    consumers = {"replicas": replicas, "processesPerReplica": processes}
    plan = resolve_plan(spec(consumers=consumers, batch={"globalPrompts": prompts}))
    assert (plan.prompts_per_step, plan.samples_per_step) == (prompts, 8 * prompts)
    assert plan.buffer_capacity == max(1, prompts // 2)
    assert plan.data_parallel_size == replicas * processes


def test_without_global_prompts_the_batch_grows_with_the_data_parallel_groups():
    plans = [resolve_plan(spec(consumers={"replicas": replicas})) for replicas in (1, 2)]
    assert [plan.prompts_per_step for plan in plans] == [64, 128]
    assert [plan.buffer_capacity for plan in plans] == [32, 64]


def test_micro_batches_are_those_of_one_data_parallel_group():
    plan = resolve_plan(spec(batch={"globalPrompts": 5, "trainMicrobatchSize": 3}))
    assert plan.samples_per_step == 40
    assert plan.micro_batches == 7


def test_micro_batches_by_tokens_are_counted_for_samples_of_maximum_length():
    plan = resolve_plan(spec(batch={"globalPrompts": 5, "trainMicrobatchTokens": 3 * 4096 + 1}))
    assert plan.samples_per_step == 40
    assert plan.micro_batches == 7


@pytest.mark.parametrize(
    ("fields", "prompts", "steps"),
    [({}, None, None), ({"maxSteps": 9}, None, 9), ({"maxSteps": 9}, 128, 2), ({}, 129, 3)],
)
def test_steps_follow_from_the_data_where_their_size_is_known(fields, prompts, steps):
    assert resolve_plan(spec(**fields), prompts).planned_steps == steps


def test_the_plan_is_written_out_in_lines():
    job = spec(
        maxSteps=40,
        algorithm={"name": "GSPO", "optimizer": {"warmupSteps": 5, "schedule": "linear"}},
    )
    assert resolve_plan(job).lines() == [
        "step: 64 prompts, 512 completions",
        "micro-batches: 128 in each of 2 data-parallel groups",
        "buffer: 32 groups",
        "steps: 40",
        "learning rate: 5 steps of warm-up to 1e-06, linear to 1e-07",
        "loss: advantage groupNormalized, sequence ratio clipped to [0.9997, 1.0004], "
        "aggregation sample, no KL term",
    ]
