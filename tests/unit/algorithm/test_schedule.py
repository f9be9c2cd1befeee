"""The learning rate: warm-up, peak, decay to its minimum; the defaults are the original's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.algorithm.schedule import learning_rate
from grpo_trainer.spec import OptimizerSpec, Schedule
from unit.algorithm.builders import algorithm

PEAK = 1e-3


def rates(total=10, steps=11, **options):
    settings = algorithm(learning_rate=PEAK, optimizer=OptimizerSpec(**options))
    return [learning_rate(step, total, settings) for step in range(steps)]


def test_by_default_it_decays_by_a_cosine_to_a_tenth():
    found = rates()
    assert found[0] == pytest.approx(PEAK)
    assert found[5] == pytest.approx(0.55 * PEAK)
    assert found[10] == pytest.approx(0.1 * PEAK)
    assert found == sorted(found, reverse=True)


def test_linear_decays_by_equal_steps_to_the_minimum():
    found = rates(schedule=Schedule.LINEAR, min_learning_rate=0.0)
    assert found == pytest.approx([PEAK * (10 - step) / 10 for step in range(11)])


def test_constant_stays_at_the_peak():
    assert rates(schedule=Schedule.CONSTANT) == [PEAK] * 11


@pytest.mark.parametrize("schedule", Schedule)
def test_the_warm_up_rises_linearly_to_the_peak(schedule):
    found = rates(warmup_steps=3, schedule=schedule)
    assert found[:4] == pytest.approx([PEAK / 4, PEAK / 2, PEAK * 3 / 4, PEAK])
    assert max(found) == PEAK


@given(st.sampled_from(Schedule), st.integers(0, 5), st.integers(0, 20), st.floats(0, PEAK))
def test_it_is_never_above_the_peak_nor_after_the_warm_up_below_the_minimum(
    schedule, warmup, total, minimum
):
    options = {"schedule": schedule, "warmup_steps": warmup, "min_learning_rate": minimum}
    found = rates(total, 30, **options)
    assert all(0 < rate <= PEAK * (1 + 1e-12) for rate in found[:warmup])
    assert all(minimum - 1e-12 <= rate <= PEAK * (1 + 1e-12) for rate in found[warmup:])
