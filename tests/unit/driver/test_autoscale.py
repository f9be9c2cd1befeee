"""How many producers a run wants.

Aspects: the range is kept whatever is measured; under constant load the number comes to rest, after
changes in one direction only, where neither side waits in vain; a change of the load is answered
within a few steps; too little evidence, and evidence that speaks against itself, changes nothing.
"""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.driver.autoscale import (
    FEWER,
    MORE,
    PATIENCE,
    WINDOW_SECONDS,
    WINDOW_STEPS,
    Autoscaler,
    Range,
    Sample,
    wanted,
)

seconds = st.floats(0.0, 1e4)
samples = st.builds(
    Sample, seconds=seconds, waited=seconds, busy=seconds, ahead=st.none() | st.floats(0, 5)
)
ranges = st.tuples(st.integers(1, 50), st.integers(0, 50)).map(lambda r: Range(r[0], sum(r)))
ANSWER = PATIENCE * WINDOW_STEPS + 1
"""Steps until the slower of the two answers; the first step of another number does not count."""
TRAIN = 10.0
"""Seconds that the consumers need for a step."""


def overlapped(demand: float, producers: int) -> Sample:
    """A step of a run with a buffer: the slower side is what it takes."""
    generate = demand * TRAIN / producers
    whole = max(TRAIN, generate)
    ahead = 2.0 if generate < TRAIN else 0.5
    return Sample(whole, whole - TRAIN, demand * TRAIN, ahead)


def synchronous(demand: float, producers: int) -> Sample:
    """A step on-policy: one side after the other."""
    generate = demand * TRAIN / producers
    return Sample(TRAIN + generate, generate, demand * TRAIN, None)


MODES = pytest.mark.parametrize("step", [overlapped, synchronous])


class Loop:
    """A run whose producers are up as soon as they are wanted."""

    def __init__(self, bounds: Range, producers: int) -> None:
        self.scaler = Autoscaler(bounds)
        self.producers = producers

    def run(self, step, demand: float, steps: int) -> list[int]:
        """The number of producers after each of some steps of constant load."""
        numbers = []
        for _ in range(steps):
            answer = self.scaler.observe(step(demand, self.producers), self.producers)
            self.producers = self.producers if answer is None else answer
            numbers.append(self.producers)
        return numbers


def changes(numbers: Sequence[int]) -> list[int]:
    return [b - a for a, b in pairwise(numbers) if a != b]


@given(st.lists(samples, min_size=1, max_size=8), st.integers(0, 60), st.integers(0, 60), ranges)
def test_the_range_is_kept_whatever_is_measured(found, ready, before, bounds):
    assert bounds.low <= wanted(found, ready, before, bounds) <= bounds.high


@given(st.lists(st.tuples(samples, st.integers(0, 60)), max_size=40), ranges)
def test_a_run_never_asks_for_a_number_out_of_range(trace, bounds):
    scaler = Autoscaler(bounds)
    answers = [scaler.observe(sample, ready) for sample, ready in trace]
    assert all(a is None or bounds.low <= a <= bounds.high for a in answers)


@MODES
@given(st.floats(0.05, 40), st.integers(1, 32))
def test_under_constant_load_the_number_comes_to_rest_without_turning_round(step, demand, start):
    loop = Loop(Range(1, 64), start)
    numbers = [start, *loop.run(step, demand, 8 * ANSWER)]
    assert len({change > 0 for change in changes(numbers)}) <= 1
    assert changes(loop.run(step, demand, 8 * ANSWER)) == []


@MODES
@given(st.floats(0.05, 40), st.integers(1, 32))
def test_at_rest_neither_side_waits_in_vain(step, demand, start):
    resting = Loop(Range(1, 64), start).run(step, demand, 16 * ANSWER)[-1]
    assert demand <= MORE * resting * (1 + 1e-9)
    # One fewer would leave the others no room to breathe.
    assert demand >= FEWER * (resting - 1) * (1 - 1e-9)


@MODES
@pytest.mark.parametrize(("before", "after"), [(2.0, 3.9), (4.0, 1.0), (1.0, 0.4), (3.0, 2.0)])
def test_a_change_of_the_load_is_answered_within_a_few_steps(step, before, after):
    loop = Loop(Range(1, 8), 2)
    resting = loop.run(step, before, 4 * ANSWER)[-1]
    answered = loop.run(step, after, 2 * ANSWER)[-1]
    assert answered == loop.run(step, after, 4 * ANSWER)[-1]
    assert (answered > resting) == (after > MORE * resting)
    assert (answered < resting) == (after < FEWER * (resting - 1))


def test_a_decision_at_most_doubles_the_producers():
    starved = [Sample(100.0, 99.9, 200.0, 0.0)] * WINDOW_STEPS
    assert wanted(starved, 2, 2, Range(1, 64)) == 4


def test_what_is_on_its_way_is_not_asked_for_again():
    slow = [overlapped(4.0, 2)] * WINDOW_STEPS
    assert wanted(slow, 2, 6, Range(1, 8)) == 6


def test_consumers_that_waited_once_with_the_next_batch_at_hand_need_no_more():
    hiccup = [Sample(20.0, 10.0, 40.0, 1.5)] * WINDOW_STEPS
    assert wanted(hiccup, 2, 2, Range(1, 8)) == 2


def test_no_producer_is_given_up_while_the_buffer_runs_dry():
    dry = [Sample(10.0, 0.0, 10.0, 0.2)] * WINDOW_STEPS
    assert wanted(dry, 4, 4, Range(1, 8)) == 4


@pytest.mark.parametrize("ready", [0, 3])
def test_without_a_measurement_nothing_changes(ready):
    nothing = [Sample(10.0, 10.0, 0.0, 0.0)] * WINDOW_STEPS
    assert wanted(nothing, ready, 3, Range(1, 8)) == 3


def test_a_few_short_steps_decide_nothing():
    scaler = Autoscaler(Range(1, 8))
    short = Sample(0.1, 0.09, 0.1, 0.0)
    answers = {scaler.observe(short, 1) for _ in range(round(WINDOW_SECONDS / 0.1) - 1)}
    assert answers == {None}


def test_what_is_missing_is_asked_for_sooner_than_what_is_too_much_is_given_up():
    starved, idle = Loop(Range(1, 8), 2), Loop(Range(1, 8), 4)
    more = starved.run(overlapped, 3.9, ANSWER)
    fewer = idle.run(overlapped, 1.0, ANSWER)
    assert more.index(4) < fewer.index(2)


def test_one_idle_window_gives_nothing_up():
    loop = Loop(Range(1, 8), 4)
    loop.run(overlapped, 4.0, ANSWER)
    assert set(loop.run(overlapped, 1.0, WINDOW_STEPS)) == {4}


def test_steps_of_another_number_of_producers_do_not_count():
    scaler = Autoscaler(Range(1, 8))
    for _ in range(WINDOW_STEPS):
        scaler.observe(overlapped(4.0, 1), 1)
    assert scaler.observe(overlapped(4.0, 1), 1) == 2
    answers = [scaler.observe(overlapped(4.0, 2), 2) for _ in range(WINDOW_STEPS)]
    assert answers == [2] * WINDOW_STEPS
    assert scaler.observe(overlapped(4.0, 2), 2) == 4
