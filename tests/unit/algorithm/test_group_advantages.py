"""Advantages of a group: value, invariances, groups without signal, rewards that are missing."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from grpo_trainer.algorithm.advantage import group_advantages

REWARDS = st.lists(st.integers(-20, 20).map(lambda n: n / 4), min_size=2, max_size=9)
MISSING = st.sampled_from([None, float("nan"), float("inf"), float("-inf")])


def test_advantages_are_standard_scores_with_the_sample_deviation():
    result = group_advantages([0.0, 0.0, 0.0, 4.0])
    assert result.std == 2.0
    assert result.has_signal
    assert result.advantages == pytest.approx(np.array([-1, -1, -1, 3]) / (2 + 1e-4))
    assert result.advantages.dtype == np.float32


@settings(deadline=None)
@given(REWARDS, st.integers(-50, 50))
def test_shifting_all_rewards_changes_nothing(rewards, shift):
    shifted = group_advantages([r + shift for r in rewards])
    assert shifted.advantages == pytest.approx(group_advantages(rewards).advantages, abs=1e-6)


@settings(deadline=None)
@given(REWARDS, st.floats(0.01, 100))
def test_scaling_all_rewards_changes_nothing_but_for_eps(rewards, scale):
    scaled = group_advantages([r * scale for r in rewards], eps=0.0)
    assert scaled.advantages == pytest.approx(
        group_advantages(rewards, eps=0.0).advantages, abs=1e-5
    )


@settings(deadline=None)
@given(REWARDS)
def test_advantages_sum_to_zero_and_keep_the_order_of_the_rewards(rewards):
    advantages = group_advantages(rewards).advantages
    assert float(advantages.sum()) == pytest.approx(0.0, abs=1e-4)
    assert all(np.diff(advantages[np.argsort(rewards, kind="stable")]) >= 0)


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.integers(1, 12))
def test_equal_rewards_give_exactly_zero(reward, size):
    result = group_advantages([reward] * size)
    assert not result.advantages.any()
    assert not result.has_signal
    assert result.std == 0.0
    assert result.valid.all()


@settings(deadline=None)
@given(REWARDS, st.data())
def test_a_missing_reward_leaves_the_statistics_of_the_others(rewards, data):
    position = data.draw(st.integers(0, len(rewards)))
    without = group_advantages(rewards)
    result = group_advantages([*rewards[:position], data.draw(MISSING), *rewards[position:]])
    assert result.advantages[position] == 0
    assert not result.valid[position]
    assert np.delete(result.advantages, position).tolist() == without.advantages.tolist()
    assert (result.std, result.has_signal) == (without.std, without.has_signal)


@pytest.mark.parametrize("rewards", [[None, 3.0], [float("nan")] * 4, [5.0], []])
def test_fewer_than_two_rewards_give_zero(rewards):
    result = group_advantages(rewards)
    assert not result.advantages.any()
    assert not result.has_signal


@settings(deadline=None)
@given(REWARDS)
def test_any_two_rewards_that_differ_are_a_signal(rewards):
    assume(len(set(rewards)) > 1)
    result = group_advantages(rewards)
    assert result.has_signal
    assert result.advantages.any()
