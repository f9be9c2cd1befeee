"""Dynamic sampling keeps a group whose trained rewards differ, within bounds of its accuracy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from grpo_trainer.algorithm.batching import step_advantages
from grpo_trainer.algorithm.masks import has_signal, trained_rewards
from grpo_trainer.messages import FinishReason
from unit.algorithm.builders import algorithm, completion, group, groups

TRUNCATED = completion([3, 4], finish_reason=FinishReason.LENGTH)
NONFINITE = completion([3, 4], [float("nan")] * 2)
COMPLETE = completion([3, 4])
MASKING = algorithm(mask_truncated=True)


def test_a_group_whose_unmasked_rewards_are_equal_is_filtered():
    mixed = group([10.0] * 4 + [0.0] * 4, [COMPLETE] * 4 + [TRUNCATED] * 4)
    assert not has_signal(mixed, MASKING)
    assert has_signal(mixed, algorithm())


def test_different_rewards_of_equal_accuracy_are_kept():
    scored = group([10.0, 5.0])
    assert [s.accuracy for s in scored.scores] == [1.0, 1.0]
    assert has_signal(scored, MASKING)


@pytest.mark.parametrize("rewards", [[-3.0, -7.0], [20.0, 1e6], [0.0, -1.0]])
def test_rewards_of_any_scale_are_kept_while_they_differ(rewards):
    assert has_signal(group(rewards), MASKING)


@pytest.mark.parametrize("missing", [None, float("nan"), float("inf")])
def test_completions_without_a_finite_reward_give_no_signal(missing):
    assert not has_signal(group([1.0, missing, 1.0]), MASKING)


def test_completions_without_a_finite_logprob_give_no_signal():
    assert not has_signal(group([1.0, 0.0, 1.0], [COMPLETE, NONFINITE, COMPLETE]), MASKING)


@pytest.mark.parametrize(
    ("bounds", "kept"),
    [
        ({}, True),
        ({"min_accuracy": 0.4}, True),
        ({"min_accuracy": 0.5}, False),
        ({"max_accuracy": 0.6}, True),
        ({"max_accuracy": 0.5}, False),
    ],
)
def test_accuracy_bounds_are_an_option_and_exclusive(bounds, kept):
    assert has_signal(group([1.0, 0.0]), replace(MASKING, **bounds)) is kept


def test_the_accuracy_is_that_of_unmasked_completions():
    scored = group([1.0, 0.5, 0.0, 0.0], [COMPLETE, COMPLETE, COMPLETE, TRUNCATED])
    assert not has_signal(scored, replace(MASKING, max_accuracy=0.6))
    assert has_signal(scored, algorithm(max_accuracy=0.6))


@settings(deadline=None)
@given(groups())
def test_without_bounds_a_group_is_kept_exactly_if_it_has_an_advantage(scored):
    (found,) = step_advantages([scored], MASKING)
    assert has_signal(scored, MASKING) == found.has_signal == bool(np.any(found.advantages))
    rewards = trained_rewards(scored, MASKING)
    assert [r is not None for r in rewards] == found.valid.tolist()
