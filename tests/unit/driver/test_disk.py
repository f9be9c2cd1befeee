"""The forecast of checkpoints against the free disk, and against a real checkpoint's size."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_trainer.driver import disk
from grpo_trainer.driver.disk import check_space, checkpoint_bytes, most_checkpoints
from grpo_trainer.errors import RunFailedError
from grpo_trainer.spec import Dtype, GRPOJobSpec

MILLION = 1_000_000


def spec(interval: int = 10, keep: int = 3) -> GRPOJobSpec:
    checkpoint = {"interval": interval, "keepLast": keep}
    return GRPOJobSpec.model_validate(
        {
            "model": {"dtype": "bfloat16"},
            "consumers": {"processesPerReplica": 1},
            "checkpoint": checkpoint,
        }
    )


def prepared(parameters: int | None, steps: int = 100) -> Any:
    return SimpleNamespace(parameters=parameters, total_steps=steps)


def with_free(monkeypatch: pytest.MonkeyPatch, free: int, total: int = 10**12) -> None:
    usage = shutil._ntuple_diskusage(total, total - free, free)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda path: usage)


@pytest.mark.parametrize(
    ("interval", "keep", "steps", "expected"),
    [(10, 3, 100, 4), (10, 3, 20, 2), (0, 3, 100, 1), (100, 3, 7, 1), (1, 1, 9, 2)],
)
def test_one_more_checkpoint_than_is_kept_exists_at_once(interval, keep, steps, expected) -> None:
    assert most_checkpoints(spec(interval, keep), steps) == expected


@pytest.mark.parametrize(
    ("dtype", "consumers", "expected"),
    [
        (Dtype.FLOAT32, {"processesPerReplica": 1}, 12),
        (Dtype.BFLOAT16, {"processesPerReplica": 1}, 14),
        (Dtype.BFLOAT16, {"processesPerReplica": 4}, 50),
        (Dtype.BFLOAT16, {"processesPerReplica": 4, "zeroStage": 1}, 14),
        (Dtype.BFLOAT16, {"processesPerReplica": 4, "tensorParallelSize": 4}, 14),
        (Dtype.BFLOAT16, {"processesPerReplica": 4, "backend": "fsdp"}, 14),
        (Dtype.FLOAT32, {"processesPerReplica": 4, "backend": "fsdp"}, 16),
    ],
)
def test_a_checkpoint_has_weights_moments_and_masters(dtype, consumers, expected) -> None:
    job = GRPOJobSpec.model_validate({"model": {"dtype": dtype}, "consumers": consumers})
    assert checkpoint_bytes(job, MILLION) == expected * MILLION


def test_too_little_space_is_refused_with_both_numbers(tmp_path: Path, monkeypatch) -> None:
    with_free(monkeypatch, free=4 * 14 * MILLION - 1)
    with pytest.raises(RunFailedError, match="55 MB are free and 4 checkpoints of 14 MB"):
        check_space(spec(), prepared(MILLION), tmp_path, existing=0)


def test_enough_space_is_accepted(tmp_path: Path, monkeypatch) -> None:
    with_free(monkeypatch, free=4 * 14 * MILLION)
    check_space(spec(), prepared(MILLION), tmp_path, existing=0)


def test_checkpoints_that_will_be_replaced_count(tmp_path: Path, monkeypatch) -> None:
    with_free(monkeypatch, free=14 * MILLION)
    check_space(spec(), prepared(MILLION), tmp_path, existing=3)


@pytest.mark.parametrize(("parameters", "total"), [(None, 10**12), (MILLION, 0)])
def test_an_unknown_size_is_not_compared(tmp_path: Path, monkeypatch, parameters, total) -> None:
    with_free(monkeypatch, free=0, total=total)
    check_space(spec(), prepared(parameters), tmp_path, existing=0)
