"""What another version wrote is read as far as it can be.

Aspects: unknown, invalid and missing fields of the driver's progress; what is no record at all.
"""

import pytest
from pydantic import ValidationError

from grpo_operator.model.lenient import read_leniently
from grpo_trainer.spec import Progress, RunState

PROGRESS = {"state": "running", "attempt": 2, "progress": {"step": 7, "totalSteps": 9}}


def test_fields_of_a_newer_trainer_are_ignored():
    newer = PROGRESS | {"novelty": {"a": 1}, "progress": {"step": 7, "totalSteps": 9, "epoch": 1}}
    assert read_leniently(Progress, newer) == Progress.model_validate(PROGRESS)


def test_invalid_fields_get_their_defaults_and_the_others_are_kept():
    odd = PROGRESS | {"state": "thinking", "metrics": {"reward": "high", "bufferDepth": 3}}
    read = read_leniently(Progress, odd)
    assert (read.state, read.progress.step) == (RunState.STARTING, 7)
    assert (read.metrics.reward, read.metrics.buffer_depth) == (None, 3)


def test_a_record_without_a_required_field_is_left_out_alone():
    read = read_leniently(Progress, PROGRESS | {"checkpoint": {"step": 5}})
    assert (read.checkpoint, read.progress.step) == (None, 7)


def test_missing_fields_get_their_defaults():
    assert read_leniently(Progress, {"attempt": 1}).progress.step == 0


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_what_is_no_record_at_all_is_refused(data):
    with pytest.raises(ValidationError):
        read_leniently(Progress, data)
