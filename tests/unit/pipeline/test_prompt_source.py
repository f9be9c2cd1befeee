"""The order of prompts and their outcomes: episodes, requeued prompts, resume."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.events import GroupCounts
from grpo_trainer.pipeline.source import PromptOutcome, PromptSource
from unit.pipeline.buffers import source_at


def rows(source: PromptSource) -> list[int]:
    """What is left to offer."""
    offered = []
    while (prompt := source.take()) is not None:
        offered.append(prompt.row)
    return offered


def test_every_row_is_returned_once_per_episode():
    offered = rows(PromptSource(10, episodes=3, seed=0))

    for start in (0, 10, 20):
        assert sorted(offered[start : start + 10]) == list(range(10))


def test_the_order_differs_between_episodes_and_between_seeds():
    offered = rows(PromptSource(50, episodes=2, seed=0))

    assert offered[:50] != offered[50:]
    assert offered != rows(PromptSource(50, episodes=2, seed=1))


def test_the_same_seed_gives_the_same_order():
    assert rows(PromptSource(50, 2, seed=7)) == rows(PromptSource(50, 2, seed=7))


def test_a_scheduled_prompt_has_its_serial_row_and_episode():
    source = PromptSource(2, episodes=2, seed=0)

    prompts = [source.take() for _ in range(4)]

    assert [(t.serial, t.episode, t.attempt) for t in prompts] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 1, 0),
        (3, 1, 0),
    ]


def test_sampling_seeds_have_63_bits_and_differ_between_prompts():
    source = PromptSource(500, episodes=1, seed=0)

    seeds = {source.take().seed for _ in range(500)}

    assert len(seeds) == 500
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_sampling_seeds_differ_between_runs_with_different_seeds():
    assert PromptSource(1, 1, seed=0).take().seed != PromptSource(1, 1, seed=1).take().seed


def test_a_requeued_prompt_is_returned_unchanged_and_counted():
    source = PromptSource(3, episodes=1, seed=0)
    first = source.take()

    source.requeue(first)

    assert source.take() == first
    assert source.counts.requeued == 1


def test_a_retried_prompt_differs_in_its_attempt_only():
    prompt = PromptSource(3, episodes=1, seed=0).take()

    assert prompt.retried() == replace(prompt, attempt=1)


def test_requeued_prompts_are_returned_before_new_ones_by_serial():
    source = PromptSource(10, episodes=1, seed=0)
    prompts = [source.take() for _ in range(4)]

    for prompt in (prompts[3], prompts[0], prompts[2]):
        source.requeue(prompt)

    assert [source.take().serial for _ in range(4)] == [0, 2, 3, 4]


def test_a_source_is_exhausted_when_no_new_and_no_requeued_prompt_is_left():
    source = PromptSource(1, episodes=1, seed=0)
    assert not source.exhausted

    prompt = source.take()
    assert source.exhausted
    assert source.take() is None

    source.requeue(prompt)
    assert not source.exhausted


def test_outcomes_are_counted():
    source = PromptSource(6, episodes=1, seed=0)
    for outcome in (
        PromptOutcome.TRAINED,
        PromptOutcome.FILTERED,
        PromptOutcome.TRAINED,
        PromptOutcome.DROPPED,
    ):
        source.finish(source.take().serial, outcome)

    assert source.counts == GroupCounts(trained=2, filtered=1, dropped=1, requeued=0)


def test_no_prompt_is_finished_twice():
    source = PromptSource(3, episodes=1, seed=0)
    source.take()
    source.take()
    source.finish(1, PromptOutcome.TRAINED)

    with pytest.raises(AssertionError, match="serial 1 is finished"):
        source.finish(1, PromptOutcome.TRAINED)


def test_a_prompt_that_was_never_taken_cannot_be_finished():
    with pytest.raises(AssertionError, match="serial 0 was not taken"):
        PromptSource(3, episodes=1, seed=0).finish(0, PromptOutcome.TRAINED)


def test_the_state_contains_finished_prompts_only():
    source = PromptSource(10, episodes=1, seed=5)
    for _ in range(6):
        source.take()
    for serial in (4, 0, 1, 3):
        source.finish(serial, PromptOutcome.TRAINED)

    state = source.state_dict()

    assert (state["done_below"], state["done_beyond"]) == (2, [3, 4])
    assert (state["count"], state["episodes"], state["seed"]) == (10, 1, 5)


def test_after_a_resume_unfinished_prompts_are_returned_again_with_the_same_seed():
    source = PromptSource(8, episodes=1, seed=0)
    before = [source.take() for _ in range(6)]
    for serial in (0, 3, 5):
        source.finish(serial, PromptOutcome.TRAINED)

    resumed = source_at(source.state_dict(), count=8, episodes=1, seed=0)

    after = [resumed.take() for _ in range(5)]
    assert [prompt.serial for prompt in after] == [1, 2, 4, 6, 7]
    assert after[:3] == [before[1], before[2], before[4]]
    assert resumed.take() is None


def test_a_source_whose_rest_was_finished_out_of_order_is_exhausted_after_the_gap():
    source = PromptSource(4, episodes=1, seed=0)
    for _ in range(4):
        source.take()
    for serial in (0, 2, 3):
        source.finish(serial, PromptOutcome.TRAINED)

    resumed = source_at(source.state_dict(), count=4, episodes=1, seed=0)

    assert resumed.take().serial == 1
    assert resumed.exhausted


def test_a_resume_keeps_the_counts():
    source = PromptSource(4, episodes=1, seed=0)
    source.requeue(source.take())
    source.finish(source.take().serial, PromptOutcome.FILTERED)

    resumed = source_at(source.state_dict(), count=4, episodes=1, seed=0)

    assert resumed.counts == GroupCounts(filtered=1, requeued=1)


def test_the_state_is_json():
    source = PromptSource(4, episodes=1, seed=0)
    for _ in range(3):
        source.take()
    source.finish(2, PromptOutcome.TRAINED)

    assert json.loads(json.dumps(source.state_dict())) == source.state_dict()


@pytest.mark.parametrize("field", ["count", "episodes", "seed"])
def test_a_state_of_another_run_is_refused_by_field_value_and_expectation(field):
    state = {**PromptSource(4, episodes=2, seed=3).state_dict(), field: 99}
    expected = {"count": 4, "episodes": 2, "seed": 3}[field]

    with pytest.raises(InvalidInputError, match=f"^{field}: .* is for 99, expected {expected};"):
        source_at(state, count=4, episodes=2, seed=3)


def test_a_refused_state_changes_nothing():
    source = PromptSource(4, episodes=1, seed=0)
    source.finish(source.take().serial, PromptOutcome.TRAINED)
    before = source.state_dict()

    with pytest.raises(InvalidInputError):
        source.load_state_dict(PromptSource(5, episodes=1, seed=0).state_dict())

    assert source.state_dict() == before


def test_the_episode_is_that_of_the_oldest_unfinished_prompt():
    source = PromptSource(2, episodes=2, seed=0)
    assert source.episode == 0

    for _ in range(2):
        source.finish(source.take().serial, PromptOutcome.TRAINED)
    assert source.episode == 1

    for _ in range(2):
        source.finish(source.take().serial, PromptOutcome.TRAINED)
    assert source.episode == 1


@given(
    count=st.integers(1, 12),
    episodes=st.integers(1, 3),
    seed=st.integers(0, 2**32),
    choices=st.randoms(use_true_random=False),
)
def test_every_prompt_finishes_exactly_once_in_any_order_of_events(
    count: int, episodes: int, seed: int, choices: random.Random
):
    source = PromptSource(count, episodes, seed)
    finished: list[int] = []
    out = []
    for _ in range(10 * count * episodes):
        action = choices.choice(["take", "take", "give back", "finish", "resume"])
        if action == "take" and (prompt := source.take()) is not None:
            out.append(prompt)
        elif action == "resume":
            state = json.loads(json.dumps(source.state_dict()))
            source = source_at(state, count=count, episodes=episodes, seed=seed)
            out = []
        elif action in ("give back", "finish") and out:
            prompt = out.pop(choices.randrange(len(out)))
            if action == "give back":
                source.requeue(prompt)
            else:
                source.finish(prompt.serial, PromptOutcome.TRAINED)
                finished.append(prompt.serial)
    while (prompt := source.take()) is not None:
        out.append(prompt)
    for prompt in out:
        source.finish(prompt.serial, PromptOutcome.TRAINED)
        finished.append(prompt.serial)

    assert sorted(finished) == list(range(count * episodes))
    assert source.state_dict()["done_below"] == count * episodes
    assert source.state_dict()["done_beyond"] == []
