"""The progress at `/progress`: state, percent, time left, rates over a window of wall time."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from grpo_trainer.events import CheckpointReport, GroupCounts, Outcome, WorkerReport
from grpo_trainer.reporting.progress import ProgressTracker
from grpo_trainer.spec import CodeProtection, Progress, RunState

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def tracker() -> ProgressTracker:
    return ProgressTracker(attempt=2, now=lambda: NOON)


def test_a_driver_starts_without_progress(tracker):
    assert tracker.current == Progress(attempt=2, updated=NOON)
    assert tracker.current.state is RunState.STARTING


def test_what_confines_programs_is_kept_over_steps(tracker, step_report):
    tracker.code_protection(CodeProtection.NAMESPACES)
    tracker.step(step_report(step=1), {})
    assert tracker.current.code_protection is CodeProtection.NAMESPACES


def test_training_resumes_at_its_last_step(tracker):
    tracker.begin(4, 10)
    assert tracker.current.state is RunState.RUNNING
    assert (tracker.current.progress.step, tracker.current.progress.percent) == (4, 40.0)


def test_time_left_is_the_remaining_steps_at_the_recent_pace(tracker, step_report):
    tracker.begin(0, 10)
    tracker.step(step_report(step=1, seconds=3.0), {})
    tracker.step(step_report(step=2, seconds=5.0), {})
    progress = tracker.current.progress
    assert (progress.step, progress.total_steps, progress.percent) == (2, 10, 20.0)
    assert progress.eta_seconds == 8 * 4.0


def test_filtered_prompts_count_as_progress(tracker, step_report):
    groups = GroupCounts(trained=8, filtered=40, dropped=2)
    tracker.begin(0, 10)
    tracker.step(step_report(step=1, seconds=3.0, groups=groups, prompts=100), {})
    progress = tracker.current.progress
    assert (progress.percent, progress.eta_seconds) == (50.0, 3.0)


def test_a_run_that_ends_by_its_steps_is_not_measured_by_its_prompts(tracker, step_report):
    tracker.step(step_report(step=9, groups=GroupCounts(trained=72), prompts=1000), {})
    assert tracker.current.progress.percent == 90.0


def test_rates_count_samples_and_tokens_per_second_of_wall_time(tracker, step_report):
    tracker.step(step_report(step=1, seconds=2.0, samples=64), {})
    tracker.step(step_report(step=2, seconds=6.0, samples=32), {})
    assert tracker.current.metrics.samples_per_second == 96 / 8
    assert tracker.current.metrics.tokens_per_second == 2 * 960 / 8


def test_rates_ignore_steps_older_than_the_window(tracker, step_report):
    tracker.step(step_report(step=1, seconds=250.0, samples=1), {})
    tracker.step(step_report(step=2, seconds=40.0, samples=64), {})
    tracker.step(step_report(step=3, seconds=40.0, samples=64), {})
    assert tracker.current.metrics.samples_per_second == 128 / 80


def test_a_step_longer_than_the_window_still_has_a_rate(tracker, step_report):
    tracker.step(step_report(seconds=1000.0, samples=500), {})
    assert tracker.current.metrics.samples_per_second == 0.5


def test_a_step_without_wall_time_has_no_rate(tracker, step_report):
    tracker.step(step_report(seconds=0.0), {})
    assert tracker.current.metrics.samples_per_second is None


def test_a_rollback_resets_the_pace(tracker, step_report):
    tracker.step(step_report(step=8, seconds=100.0), {})
    tracker.begin(4, 10)
    tracker.step(step_report(step=5, seconds=2.0), {})
    assert tracker.current.progress.eta_seconds == 10.0


def test_a_value_that_is_not_finite_is_null_in_the_response(tracker, step_report):
    tracker.step(step_report(reward_mean=math.nan), {})
    wire = json.loads(tracker.current.model_dump_json(by_alias=True))
    assert wire["metrics"]["reward"] is None


def test_the_response_is_camel_case_and_reads_back(tracker, step_report):
    tracker.begin(0, 10)
    tracker.workers(WorkerReport(1, 2, 3, 4))
    tracker.step(step_report(), {})
    tracker.checkpoint(CheckpointReport(step=1, path="checkpoints/step-1", seconds=1.0))
    text = tracker.current.model_dump_json(by_alias=True)
    assert Progress.model_validate_json(text) == tracker.current
    wire = json.loads(text)
    assert wire["progress"]["totalSteps"] == 10
    assert wire["workers"]["producersDesired"] == 2
    assert wire["metrics"]["bufferCapacity"] == 16
    assert wire["checkpoint"] == {
        "step": 1,
        "path": "checkpoints/step-1",
        "time": "2026-01-01T12:00:00Z",
    }


def test_a_message_lasts_until_the_next_step(tracker, step_report):
    tracker.message("waiting for 1 producer")
    assert tracker.current.message == "waiting for 1 producer"
    tracker.step(step_report(), {})
    assert tracker.current.message == ""
    tracker.step(step_report(step=2, note="every group was constant"), {})
    assert tracker.current.message == "every group was constant"


def test_steps_while_draining_do_not_undo_it(tracker, step_report):
    tracker.begin(0, 10)
    tracker.draining()
    tracker.step(step_report(), {})
    assert tracker.current.state is RunState.DRAINING


@pytest.mark.parametrize("outcome", list(Outcome))
def test_the_end_of_a_run_is_its_state(tracker, summary, outcome):
    fields = {name: getattr(summary, name) for name in summary.__dataclass_fields__}
    tracker.finish(type(summary)(**{**fields, "outcome": outcome, "message": "why"}))
    assert tracker.current.state == RunState(outcome.value)
    assert tracker.current.message == "why"


@pytest.mark.parametrize(
    ("outcome", "percent"),
    [(Outcome.SUCCEEDED, 100.0), (Outcome.STOPPED, 70.0), (Outcome.FAILED, 70.0)],
)
def test_a_run_that_succeeded_is_complete_however_many_steps_it_took(
    tracker, step_report, summary, outcome, percent
):
    tracker.step(step_report(step=7), {})
    tracker.finish(replace(summary, outcome=outcome))
    assert tracker.current.progress.percent == percent


def test_the_requested_producers_are_reported_with_autoscaling(tracker):
    tracker.workers(WorkerReport(1, 2, 3, 4))
    assert tracker.current.producers_wanted is None
    tracker.workers(WorkerReport(1, 2, 3, 4, producers_wanted=5))
    assert tracker.current.producers_wanted == 5
