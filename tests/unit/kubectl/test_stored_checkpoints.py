"""Checkpoints on a volume, with the real scripts on real directories: which are
listed, which are complete, and that a copy is complete or absent."""

import os
import shutil
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from grpo_kubectl import checkpoints
from grpo_kubectl.checkpoints import StoredCheckpoint, chosen, directory, parse, render, stored
from grpo_kubectl.copying import copy
from grpo_kubectl.errors import CommandError
from grpo_trainer.driver.checkpoints import CheckpointStore
from support.observations import NOW, job
from unit.kubectl.local_shell import local


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """Checkpoints as the trainer writes them: steps 50, 100 and 150, and step 200 half-written."""
    store = CheckpointStore(tmp_path / "checkpoints", keep_last=10)
    for step in (50, 100, 150):
        partial = store.begin(step)
        (partial / "model.safetensors").write_bytes(os.urandom(100_000 + step))
        (partial / "trainer" / "rank-0.pt").write_bytes(os.urandom(5000))
        store.commit(partial, step, {"step": step})
    store.begin(200)
    return tmp_path / "checkpoints"


async def listed(volume: Path) -> tuple[StoredCheckpoint, ...]:
    return await stored(local, str(volume))


def files(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


async def test_checkpoints_are_listed_by_step_with_size_and_completeness(volume):
    (volume / "step-100" / "COMPLETE").unlink()
    found = await listed(volume)
    assert [(c.step, c.complete) for c in found] == [(50, True), (100, False), (150, True)]
    assert all(100 <= c.kib <= 130 for c in found)


async def test_a_marker_of_another_step_does_not_count(volume):
    (volume / "step-100" / "COMPLETE").write_text("99")
    assert [c.complete for c in await listed(volume)] == [True, False, True]


async def test_other_entries_are_left_out(volume):
    (volume / "step-x").mkdir()
    (volume / "step-7").write_text("a file")
    assert [c.step for c in await listed(volume)] == [50, 100, 150]


async def test_an_empty_directory_has_none_and_a_missing_one_fails(tmp_path):
    assert await listed(tmp_path) == ()
    with pytest.raises(CommandError, match="nowhere"):
        await listed(tmp_path / "nowhere")


def test_the_directory_is_that_of_the_driver():
    assert directory(job()) == "/data/runs/math-0a1b2c3d/checkpoints"


def test_the_table_shows_step_size_and_age():
    listing = f"step-50\t2048\t{int(NOW.timestamp()) - 90}\t50\nstep-9\t1\t0\t\n"
    header, first, second = (line.split() for line in render(parse(listing), NOW))
    assert header == ["STEP", "SIZE", "COMPLETE", "AGE"]
    assert first[:4] == ["9", "1", "KiB", "no"]
    assert second == ["50", "2", "MiB", "yes", "90s"]


@pytest.mark.parametrize(("step", "taken"), [(None, 150), (50, 50)])
async def test_the_newest_complete_one_is_taken_unless_another_is_asked_for(volume, step, taken):
    assert chosen(await listed(volume), step).step == taken


async def test_a_missing_or_incomplete_checkpoint_is_refused_with_the_complete_ones(volume):
    (volume / "step-150" / "COMPLETE").unlink()
    found = await listed(volume)
    assert chosen(found, None).step == 100
    incomplete = "--step: Invalid value: 150: the checkpoint is incomplete; complete: 50, 100"
    with pytest.raises(CommandError, match=incomplete):
        chosen(found, 150)
    with pytest.raises(
        CommandError, match="Invalid value: 7: no such checkpoint; complete: 50, 100"
    ):
        chosen(found, 7)
    with pytest.raises(CommandError, match="no complete checkpoint"):
        chosen((), None)


async def test_a_copy_is_equal_byte_by_byte(volume, tmp_path):
    target = tmp_path / "out" / "model"
    count = await copy(local, str(volume), chosen(await listed(volume), 100), target)
    assert files(target) == files(volume / "step-100")
    assert count == sum(len(content) for content in files(target).values())
    assert os.listdir(tmp_path / "out") == ["model"]


async def test_a_copy_overwrites_nothing(volume, tmp_path):
    target = tmp_path / "out"
    target.write_text("mine")
    with pytest.raises(CommandError, match="nothing is overwritten"):
        await copy(local, str(volume), chosen(await listed(volume), 100), target)
    assert target.read_text() == "mine"


async def test_a_copy_that_cannot_be_written_says_why(volume, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="file"):
        await copy(local, str(volume), chosen(await listed(volume), 100), tmp_path / "file" / "out")


async def fails_to_copy(volume: Path, tmp_path: Path, shell: checkpoints.Shell, match: str) -> None:
    checkpoint = chosen(await listed(volume), 100)
    with pytest.raises(CommandError, match=match):
        await copy(shell, str(volume), checkpoint, tmp_path / "out" / "model")
    assert list((tmp_path / "out").iterdir()) == []


async def test_a_stream_that_ends_early_leaves_nothing(volume, tmp_path):
    async def short(command: Sequence[str]) -> AsyncGenerator[bytes, None]:
        sent = 0
        async for chunk in local(command):
            sent += len(chunk)
            if sent > 50_000:
                return
            yield chunk

    await fails_to_copy(volume, tmp_path, short, "the copy failed: unexpected end of data")


async def test_a_connection_that_breaks_is_an_error_and_leaves_nothing(volume, tmp_path):
    async def broken(command: Sequence[str]) -> AsyncGenerator[bytes, None]:
        async for chunk in local(command):
            yield chunk
            if command[0] == "tar":
                raise CommandError("the connection broke")

    await fails_to_copy(volume, tmp_path, broken, "the connection broke")


async def test_a_checkpoint_that_is_pruned_meanwhile_leaves_nothing(volume, tmp_path):
    async def pruned(command: Sequence[str]) -> AsyncGenerator[bytes, None]:
        if command[0] == "tar":
            (volume / "step-100" / "COMPLETE").unlink()
        async for chunk in local(command):
            yield chunk

    await fails_to_copy(volume, tmp_path, pruned, "truncated during the copy: COMPLETE")


async def test_a_checkpoint_that_was_deleted_is_an_error_and_leaves_nothing(volume, tmp_path):
    async def gone(command: Sequence[str]) -> AsyncGenerator[bytes, None]:
        shutil.rmtree(volume / "step-100", ignore_errors=True)
        async for chunk in local(command):
            yield chunk

    checkpoint = chosen(await listed(volume), 100)
    with pytest.raises(CommandError):
        await copy(gone, str(volume), checkpoint, tmp_path / "out")
    assert not (tmp_path / "out").exists()


async def test_an_archive_that_leads_outside_is_refused(volume, tmp_path):
    (volume / "step-100" / "link").symlink_to("/etc/passwd")
    await fails_to_copy(volume, tmp_path, local, "the copy failed")


def test_a_listing_keeps_the_time_of_the_last_change():
    (found,) = parse("step-1\t4\t1700000000\t1\n")
    assert found.changed == datetime.fromtimestamp(1700000000, UTC)
