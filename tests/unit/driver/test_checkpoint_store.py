"""Checkpoints on disk: what counts, what is pruned, what a killed run leaves."""

import json
from pathlib import Path

import pytest

from grpo_trainer.driver.checkpoints import (
    CheckpointStore,
    model_file,
    read_checkpoint,
    write_index,
)
from grpo_trainer.errors import InvalidInputError


def write(store: CheckpointStore, step: int) -> None:
    partial = store.begin(step)
    (partial / "model.safetensors").write_bytes(b"weights")
    store.commit(partial, step, {"step": step})


def test_the_newest_complete_checkpoint_is_resumed(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep_last=5)
    for step in (9, 10, 100):
        write(store, step)
    newest = store.newest()
    assert newest is not None
    assert newest.step == 100
    assert newest.driver_state() == {"step": 100}


def test_a_checkpoint_without_its_marker_does_not_count(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep_last=5)
    write(store, 10)
    write(store, 20)
    (tmp_path / "step-20" / "COMPLETE").unlink()
    newest = store.newest()
    assert newest is not None
    assert newest.step == 10


def test_half_written_directories_are_removed_at_the_next_start(tmp_path: Path) -> None:
    (CheckpointStore(tmp_path, keep_last=5).begin(10) / "model.safetensors").write_bytes(b"half")
    CheckpointStore(tmp_path, keep_last=5)
    assert list(tmp_path.iterdir()) == []


def test_only_the_last_complete_ones_are_kept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep_last=2)
    (tmp_path / "step-1").mkdir()
    for step in (2, 3, 4):
        write(store, step)
    assert [c.step for c in store.complete()] == [3, 4]
    # An incomplete one may be somebody's evidence: it is neither counted nor deleted.
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-1", "step-3", "step-4"]


def test_a_step_may_be_written_again(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep_last=2)
    write(store, 5)
    write(store, 5)
    assert [c.step for c in store.complete()] == [5]


def test_resuming_from_an_incomplete_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"spec\.checkpoint\.resumeFrom"):
        read_checkpoint(tmp_path)


def test_the_index_names_the_file_of_each_stage(tmp_path: Path) -> None:
    for stage in range(2):
        (tmp_path / model_file(stage, 2)).write_bytes(b"12345")
    write_index(tmp_path, [["a", "b"], ["c"]])
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["weight_map"]["c"] == "model-00002-of-00002.safetensors"
    assert index["metadata"]["total_size"] == 10


def test_one_stage_needs_no_index(tmp_path: Path) -> None:
    write_index(tmp_path, [["a"]])
    assert list(tmp_path.iterdir()) == []


def test_the_drivers_state_can_be_updated_in_place(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep_last=2)
    write(store, 5)
    newest = store.newest()
    assert newest is not None
    newest.update_driver_state({"evaluation_pending": False})
    assert newest.driver_state() == {"step": 5, "evaluation_pending": False}
    assert [path.name for path in newest.trainer_state.iterdir()] == ["driver.json"]
