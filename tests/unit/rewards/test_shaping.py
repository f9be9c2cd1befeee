"""The overlong penalty: its range, shape and effect on scores."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.messages import Completion, FinishReason, Score
from grpo_trainer.rewards import RIGHT_REWARD, max_reward, overlong_penalty, shape
from grpo_trainer.spec import ResolvedAlgorithm, resolve_algorithm
from grpo_trainer.spec.job import GRPOJobSpec

limits = st.integers(1, 10_000).flatmap(lambda most: st.tuples(st.just(most), st.integers(1, most)))


def completion(length: int) -> Completion:
    tokens = np.zeros(length, np.int32)
    return Completion(tokens, tokens.astype(np.float32), tokens, "", FinishReason.STOP)


def shaped(scores, completions, algorithm, limit=100, full=RIGHT_REWARD):
    return shape(scores, completions, algorithm, max_new_tokens=limit, max_reward=full)


@pytest.fixture
def overlong() -> ResolvedAlgorithm:
    algorithm = resolve_algorithm(GRPOJobSpec.model_validate({"algorithm": {"name": "DAPO"}}))
    return replace(algorithm, overlong=True, overlong_buffer_tokens=20)


@given(limits, st.data())
def test_the_penalty_never_jumps_and_never_falls_with_length(limit, data):
    most, buffer = limit
    length = data.draw(st.integers(0, most))
    here, there = (overlong_penalty(size, most, buffer) for size in (length, length + 1))
    assert -1.0 <= there <= here <= 0.0
    assert here - there <= 1 / buffer + 1e-12


@given(limits)
def test_the_penalty_starts_at_the_buffer_and_is_full_at_the_limit(limit):
    most, buffer = limit
    assert overlong_penalty(most - buffer, most, buffer) == 0.0
    assert overlong_penalty(most, most, buffer) == -1.0
    assert overlong_penalty(most + 1, most, buffer) == -1.0


def test_a_right_long_completion_loses_reward_but_not_accuracy(overlong):
    (score,) = shaped([Score(RIGHT_REWARD, 1.0, 1.0)], [completion(90)], overlong)
    assert score == Score(RIGHT_REWARD * 0.75, 1.0, 1.0)


def test_a_wrong_long_completion_is_worse_than_a_wrong_short_one(overlong):
    wrong = Score(0.0, 1.0, 0.0)
    short, truncated = shaped([wrong, wrong], [completion(80), completion(100)], overlong)
    assert (short.reward, truncated.reward) == (0.0, -RIGHT_REWARD / 2)


@pytest.mark.parametrize(
    ("spec", "penalty"),
    [
        ({}, RIGHT_REWARD / 2),
        ({"reward": {"type": "custom", "custom": {"module": "m"}}}, 0.5),
        ({"algorithm": {"overlong": {"penalty": 0.25}}}, 0.25),
    ],
)
def test_a_completion_at_the_limit_loses_half_of_the_maximum_reward(spec, penalty):
    spec = GRPOJobSpec.model_validate(spec)
    algorithm = replace(resolve_algorithm(spec), overlong=True)
    (score,) = shaped(
        [Score(0.0, 1.0, 0.0)], [completion(3584)], algorithm, 3584, max_reward(spec.reward)
    )
    assert score.reward == -penalty


def test_an_unscored_completion_stays_unscored(overlong):
    unscored = Score(None, 0.0, 0.0, "timeout")
    assert shaped([unscored], [completion(100)], overlong) == (unscored,)


def test_nothing_changes_if_the_penalty_is_disabled(overlong):
    scores = (Score(RIGHT_REWARD, 1.0, 1.0),)
    assert shaped(scores, [completion(100)], replace(overlong, overlong=False)) == scores


def test_a_score_without_its_completion_raises(overlong):
    with pytest.raises(ValueError, match="shorter"):
        shaped([Score(0.0, 0.0, 0.0)] * 2, [completion(1)], overlong)
