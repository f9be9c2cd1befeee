"""Checkpoints on disk: a directory is complete or is ignored."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_trainer.errors import InvalidInputError, invalid

COMPLETE = "COMPLETE"
TRAINER_STATE = "trainer"
DRIVER_STATE = "driver.json"
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint."""

    step: int
    path: Path

    @property
    def trainer_state(self) -> Path:
        """Files of the training processes."""
        return self.path / TRAINER_STATE

    def driver_state(self) -> Mapping[str, Any]:
        """The driver's state: step, position in the data, totals."""
        state: Mapping[str, Any] = json.loads((self.trainer_state / DRIVER_STATE).read_text())
        return state

    def update_driver_state(self, changes: Mapping[str, Any]) -> None:
        """Replace entries of the driver's state, atomically."""
        _write_state(self.trainer_state, {**self.driver_state(), **changes})
        _sync(self.trainer_state)


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a directory; raises InvalidInputError unless it is complete."""
    if not (path / COMPLETE).exists():
        must = f"must be a directory step-N that contains a file {COMPLETE}"
        raise InvalidInputError(invalid("spec.checkpoint.resumeFrom", str(path), must))
    return Checkpoint(int((path / COMPLETE).read_text()), path)


def complete_checkpoints(directory: Path) -> list[Checkpoint]:
    """Complete checkpoints in a directory, oldest first; none where there is no directory."""
    found = [
        Checkpoint(int(path.name.removeprefix("step-")), path)
        for path in directory.glob("step-*")
        if path.name.removeprefix("step-").isdigit() and (path / COMPLETE).exists()
    ]
    return sorted(found, key=lambda c: c.step)


def newest_checkpoint(directory: Path) -> Checkpoint | None:
    """The checkpoint that a run in this directory would resume from."""
    return next(reversed(complete_checkpoints(directory)), None)


class CheckpointStore:
    """The checkpoints of one run, `step-N` each."""

    def __init__(self, directory: Path, keep_last: int) -> None:
        self._directory = directory
        self._keep_last = keep_last
        directory.mkdir(parents=True, exist_ok=True)
        # Left half-written by a run that was killed.
        for leftover in directory.glob(".step-*"):
            shutil.rmtree(leftover)

    def complete(self) -> list[Checkpoint]:
        """Complete checkpoints, oldest first."""
        return complete_checkpoints(self._directory)

    def newest(self) -> Checkpoint | None:
        """The checkpoint that a run resumes from."""
        return newest_checkpoint(self._directory)

    def begin(self, step: int) -> Path:
        """An empty directory to write the checkpoint of a step into."""
        partial = self._directory / f".step-{step}"
        shutil.rmtree(partial, ignore_errors=True)
        (partial / TRAINER_STATE).mkdir(parents=True)
        return partial

    def commit(self, partial: Path, step: int, state: Mapping[str, Any]) -> Checkpoint:
        """Complete a checkpoint: sync everything to disk first, write the marker last."""
        _write_state(partial / TRAINER_STATE, state)
        for path in partial.rglob("*"):
            _sync(path)
        final = self._directory / f"step-{step}"
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        _sync(self._directory)
        (final / COMPLETE).write_text(str(step))
        _sync(final / COMPLETE)
        _sync(final)
        self._prune()
        return Checkpoint(step, final)

    def _prune(self) -> None:
        for old in self.complete()[: -self._keep_last]:
            # The marker first: a half-deleted directory is then ignored.
            (old.path / COMPLETE).unlink()
            shutil.rmtree(old.path)


def model_file(stage: int, stages: int) -> str:
    """File name of a pipeline stage's weights, as transformers expects it."""
    return (
        "model.safetensors" if stages == 1 else f"model-{stage + 1:05}-of-{stages:05}.safetensors"
    )


def write_index(directory: Path, names: Sequence[Sequence[str]]) -> None:
    """Write the index from tensors to files, where there is more than one file."""
    stages = len(names)
    if stages == 1:
        return
    files = [directory / model_file(stage, stages) for stage in range(stages)]
    weight_map = {name: file.name for file, of in zip(files, names, strict=True) for name in of}
    size = sum(file.stat().st_size for file in files)
    body = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (directory / INDEX).write_text(json.dumps(body, indent=2))


def _write_state(directory: Path, state: Mapping[str, Any]) -> None:
    temporary = directory / f".{DRIVER_STATE}"
    temporary.write_text(json.dumps(state))
    _sync(temporary)
    temporary.replace(directory / DRIVER_STATE)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
