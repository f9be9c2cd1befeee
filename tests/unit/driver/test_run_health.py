"""Systematic failure is never success.

Aspects: engines that always fail end the run early, with the first error; failures
among successes do not; a run without an update of the weights fails at the end of its data.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.driver.run_health import (
    MAX_ENGINE_ERRORS,
    MAX_PROCESS_LOSSES,
    MAX_SKIPPED_STEPS,
    RunHealth,
)
from grpo_trainer.errors import InvalidInputError, RunFailedError
from grpo_trainer.events import GroupCounts


def lose(health: RunHealth, name: str, times: int, *, raised: bool) -> None:
    for number in range(times):
        health.producer_lost(name, f"RuntimeError: number {number}", raised=raised)


@pytest.mark.parametrize(
    ("raised", "bound"), [(True, MAX_ENGINE_ERRORS), (False, MAX_PROCESS_LOSSES)]
)
def test_an_engine_that_always_fails_ends_the_run_with_its_first_error(raised, bound) -> None:
    health = RunHealth()
    lose(health, "producer-0", bound - 1, raised=raised)
    with pytest.raises(RunFailedError, match="first error: producer-0: RuntimeError: number 0"):
        lose(health, "producer-0", 1, raised=raised)


@given(st.lists(st.sampled_from(["lost", "rollout"]), max_size=60))
def test_only_failures_without_a_rollout_in_between_end_a_run(events) -> None:
    health, consecutive = RunHealth(), 0
    for event in events:
        if event == "rollout":
            health.rollout_received()
            consecutive = 0
            continue
        consecutive += 1
        if consecutive == MAX_ENGINE_ERRORS:
            with pytest.raises(RunFailedError):
                health.producer_lost("producer-0", "?", raised=True)
            return
        health.producer_lost("producer-0", "?", raised=True)


BATCH = Path("run/logs/nonfinite-step.npz")


def test_a_node_that_takes_many_producers_with_it_ends_no_run() -> None:
    health = RunHealth()
    for number in range(40):
        health.producer_lost(f"producer-{number}", "node died", raised=False)


def test_gradients_that_are_never_finite_end_the_run() -> None:
    health = RunHealth()
    for step in range(1, MAX_SKIPPED_STEPS):
        health.step_skipped(step, BATCH)
    health.step_trained()
    for step in range(1, MAX_SKIPPED_STEPS):
        health.step_skipped(step, BATCH)
    with pytest.raises(RunFailedError, match=r"not finite.*logs/nonfinite-step\.npz"):
        health.step_skipped(MAX_SKIPPED_STEPS, BATCH)


def test_a_run_that_updated_the_weights_has_made_progress() -> None:
    RunHealth().check_progress(5, 1, GroupCounts(trained=5, filtered=35))


def test_data_that_are_filtered_whole_are_invalid() -> None:
    with pytest.raises(InvalidInputError, match="filtered 8 of 8 prompts"):
        RunHealth().check_progress(0, 0, GroupCounts(filtered=8))


def test_prompts_that_were_all_dropped_name_the_first_engine_error() -> None:
    health = RunHealth()
    health.producer_lost("producer-0", "RuntimeError: CUDA error", raised=True)
    with pytest.raises(RunFailedError, match=r"8 of 8 prompts were dropped; .*CUDA error"):
        health.check_progress(0, 0, GroupCounts(dropped=8))


def test_steps_that_never_had_a_gradient_are_no_success() -> None:
    with pytest.raises(InvalidInputError, match="none of 3 steps had anything to train on"):
        RunHealth().check_progress(3, 0, GroupCounts(trained=24))
