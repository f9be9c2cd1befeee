"""How many prompts may start: staleness, capacity, the groups of the next step, the last step."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.pipeline.admission import Limits, fair_share, startable

LIMITS = Limits(groups_per_step=4, capacity=100, max_staleness=2, max_steps=None)


def may_start(limits: Limits = LIMITS, **state: int | bool) -> int:
    usual = {
        "version": 10,
        "next_step": 10,
        "wanted": limits.groups_per_step,
        "in_flight": 0,
        "take_pending": False,
    }
    return startable(limits, **{**usual, **state})


def test_fresh_weights_may_serve_the_next_step_and_max_staleness_further_ones():
    assert may_start() == 3 * 4


def test_weights_one_version_old_serve_one_step_less():
    assert may_start(version=9) == 2 * 4


def test_groups_in_flight_use_up_what_may_start():
    assert may_start(in_flight=11) == 1
    assert may_start(in_flight=12) == 0
    assert may_start(in_flight=13) == 0


def test_weights_too_old_for_the_next_step_start_nothing():
    assert may_start(version=8) == 4
    assert may_start(version=7) == 0
    assert may_start(version=0) == 0


def test_staleness_zero_starts_one_step_and_only_with_its_own_weights():
    on_policy = replace(LIMITS, max_staleness=0)

    assert may_start(on_policy) == 4
    assert may_start(on_policy, version=9) == 0


def test_weights_newer_than_the_next_step_were_rolled_back_and_start_nothing():
    assert may_start(version=11) == 0


def test_capacity_bounds_groups_in_flight_while_no_take_is_pending():
    assert may_start(replace(LIMITS, capacity=5), in_flight=3) == 2


def test_a_pending_take_makes_room_for_its_own_groups():
    assert may_start(replace(LIMITS, capacity=5), in_flight=3, take_pending=True) == 6


def test_capacity_zero_starts_only_for_a_pending_take():
    rendezvous = replace(LIMITS, capacity=0)

    assert may_start(rendezvous) == 0
    assert may_start(rendezvous, take_pending=True) == 4


def test_a_next_step_that_wants_less_starts_less():
    assert may_start(wanted=1) == 1 + 2 * 4
    assert may_start(replace(LIMITS, max_staleness=0), wanted=1) == 1


def test_nothing_starts_for_steps_beyond_the_last():
    assert may_start(replace(LIMITS, max_steps=12)) == 2 * 4
    assert may_start(replace(LIMITS, max_steps=11)) == 4
    assert may_start(replace(LIMITS, max_steps=10)) == 0


def test_waiting_producers_share_evenly_and_each_gets_a_prompt():
    assert fair_share(8, 2) == 4
    assert fair_share(3, 2) == 2
    assert fair_share(1, 5) == 1
    assert fair_share(0, 5) == 0


@given(
    limits=st.builds(
        Limits,
        groups_per_step=st.integers(1, 8),
        capacity=st.integers(0, 40),
        max_staleness=st.integers(0, 5),
        max_steps=st.none() | st.integers(1, 20),
    ),
    version=st.integers(0, 12),
    next_step=st.integers(0, 12),
    in_flight=st.integers(0, 60),
    take_pending=st.booleans(),
)
def test_the_last_group_that_may_start_is_used_in_time(
    limits: Limits, version: int, next_step: int, in_flight: int, take_pending: bool
):
    allowed = startable(
        limits,
        version=version,
        next_step=next_step,
        wanted=limits.groups_per_step,
        in_flight=in_flight,
        take_pending=take_pending,
    )

    assert allowed >= 0
    if allowed:
        last_ahead = in_flight + allowed - 1
        used_at = next_step + last_ahead // limits.groups_per_step
        assert 0 <= used_at - version <= limits.max_staleness
        assert limits.max_steps is None or used_at < limits.max_steps
        assert last_ahead < limits.capacity + take_pending * limits.groups_per_step
