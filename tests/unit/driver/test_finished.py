"""A finished run directory is recognized before anything is started."""

from pathlib import Path
from typing import Any

import pytest

from grpo_trainer.driver.checkpoints import CheckpointStore
from grpo_trainer.driver.finished import finished_message
from grpo_trainer.options import RunOptions
from grpo_trainer.reporting import RunPaths
from grpo_trainer.spec import GRPOJobSpec

STATE = {
    "source": {"count": 8, "episodes": 2, "done_below": 8},
    "evaluation_pending": False,
    "ledger": {"updates": 3},
}


def message(directory: Path, step: int, max_steps: int | None, **changes: Any) -> str | None:
    paths = RunPaths.of(RunOptions(run_dir=directory))
    store = CheckpointStore(paths.checkpoints, keep_last=3)
    store.commit(store.begin(step), step, {**STATE, **changes})
    return finished_message(GRPOJobSpec.model_validate({"maxSteps": max_steps}), paths)


def test_a_run_that_reached_max_steps_names_the_two_ways_to_continue(tmp_path: Path) -> None:
    found = message(tmp_path, 3, 3)
    assert found is not None
    assert "already finished (3 of 3 steps); raise maxSteps or choose another --run-dir" in found


def test_a_run_that_used_up_its_data_names_the_one_way(tmp_path: Path) -> None:
    source = {"count": 8, "episodes": 2, "done_below": 16}
    found = message(tmp_path, 3, None, source=source)
    assert found is not None
    assert "(3 steps, all data are used up); choose another --run-dir" in found


@pytest.mark.parametrize(
    "changes", [{"evaluation_pending": True}, {"ledger": {"updates": 0}}], ids=["pending", "failed"]
)
def test_a_pending_evaluation_or_a_run_that_never_trained_is_not_finished(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    assert message(tmp_path, 3, 3, **changes) is None


def test_a_run_with_steps_left_is_not_finished(tmp_path: Path) -> None:
    assert message(tmp_path, 3, 4) is None


def test_a_new_directory_is_not_finished(tmp_path: Path) -> None:
    paths = RunPaths.of(RunOptions(run_dir=tmp_path / "new"))
    assert finished_message(GRPOJobSpec.model_validate({"maxSteps": 1}), paths) is None
