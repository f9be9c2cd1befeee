"""When progress is written. Aspects: it settles first, not too often, what waits is not put off."""

import pytest

from grpo_operator.controller.throttle import SETTLE_SECONDS, StatusThrottle

KEY = ("lab", "math")


@pytest.fixture
def throttle():
    return StatusThrottle(15.0)


def test_the_first_progress_waits_for_more_of_it(throttle):
    assert throttle.seconds_to_wait(KEY, 100.0) == SETTLE_SECONDS


def test_what_waits_is_not_put_off_by_more_progress(throttle):
    throttle.seconds_to_wait(KEY, 100.0)
    assert throttle.seconds_to_wait(KEY, 101.5) == SETTLE_SECONDS - 1.5
    assert throttle.seconds_to_wait(KEY, 103.0) <= 0


def test_two_writes_are_some_time_apart(throttle):
    throttle.written(KEY, 100.0)
    assert 14.0 <= throttle.seconds_to_wait(KEY, 101.0) <= 15.0 * 1.3


def test_long_after_a_write_progress_only_settles(throttle):
    throttle.written(KEY, 100.0)
    assert throttle.seconds_to_wait(KEY, 200.0) == SETTLE_SECONDS


def test_another_write_takes_along_what_waits(throttle):
    throttle.seconds_to_wait(KEY, 100.0)
    throttle.written(KEY, 101.0)
    assert throttle.seconds_to_wait(KEY, 103.0) > 0


def test_jobs_have_nothing_to_do_with_each_other(throttle):
    throttle.written(("lab", "other"), 100.0)
    assert throttle.seconds_to_wait(KEY, 101.0) == SETTLE_SECONDS


def test_without_a_least_time_all_is_written_at_once():
    assert StatusThrottle(0.0).seconds_to_wait(KEY, 100.0) <= 0


def test_nothing_is_kept_of_a_job_that_is_gone(throttle):
    throttle.written(KEY, 100.0)
    throttle.seconds_to_wait(KEY, 101.0)
    throttle.forget(KEY)
    assert throttle == StatusThrottle(15.0)
