"""The scripts that read Ray's log files of drivers and actors."""

import os

import pytest

from grpo_kubectl import stored_logs
from grpo_kubectl.errors import CommandError
from grpo_kubectl.logs import ACTORS_SCRIPT, DRIVER_SCRIPT, whole_lines
from grpo_kubectl.shell import text_of
from unit.kubectl.local_shell import local


async def driver(logs, run: str, tail: int = 100) -> str:
    return await text_of(local(("sh", "-c", DRIVER_SCRIPT, "sh", str(logs), run, str(tail), "")))


async def actors(logs, tail: int = 100) -> str:
    return await text_of(local(("sh", "-c", ACTORS_SCRIPT, "sh", str(logs), str(tail), "")))


async def stored(script: str, directory, *arguments: str) -> str:
    return await text_of(local(("sh", "-c", script, "sh", str(directory), *arguments)))


@pytest.fixture
def copies(tmp_path):
    """Copies of two heads: attempt 1 ran on the first, attempt 2 on the second."""
    times = iter(range(1000, 2000))

    def write(path: str, text: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        now = next(times)
        os.utime(file, (now, now))
        os.utime(file.parent, (now, now))

    write("head-a/job-driver-0a1b2c3d-1.log", "one\n")
    write("head-b/job-driver-0a1b2c3d-2.log.1", "two\nthree\n")
    write("head-b/job-driver-0a1b2c3d-2.log", "four\n")
    return tmp_path


async def test_the_copy_of_an_attempt_is_found_whatever_its_pod(copies):
    assert await stored(stored_logs.DRIVER_SCRIPT, copies, "0a1b2c3d-1", "9") == "one\n"


async def test_a_rotated_copy_comes_first(copies):
    assert await stored(stored_logs.DRIVER_SCRIPT, copies, "0a1b2c3d-2", "2") == "three\nfour\n"


async def test_an_attempt_without_a_copy_is_named(copies):
    with pytest.raises(CommandError, match="the volume has no log of attempt 3"):
        await stored(stored_logs.DRIVER_SCRIPT, copies, "0a1b2c3d-3", "9")
    with pytest.raises(CommandError, match="the volume has no logs"):
        await stored(stored_logs.DRIVER_SCRIPT, copies / "nowhere", "0a1b2c3d-3", "9")


async def test_the_copies_of_the_newest_pods_name_their_pods(copies):
    newest = await stored(stored_logs.PODS_SCRIPT, copies, "1", "2")
    assert newest == "[head-b] three\n[head-b] four\n"
    both = await stored(stored_logs.PODS_SCRIPT, copies, "2", "1")
    assert both == "[head-b] four\n[head-a] one\n"


async def test_the_last_lines_of_an_attempts_log_are_shown(tmp_path):
    (tmp_path / "job-driver-0a1b2c3d-2.log").write_text("one\ntwo\nthree\n")
    assert await driver(tmp_path, "0a1b2c3d-2", tail=2) == "two\nthree\n"


async def test_an_attempt_without_a_log_is_named(tmp_path):
    with pytest.raises(CommandError, match="no log of attempt 3"):
        await driver(tmp_path, "0a1b2c3d-3")
    with pytest.raises(CommandError, match="no log of attempt 3"):
        await driver(tmp_path / "nowhere", "0a1b2c3d-3")


@pytest.mark.parametrize("name", ["worker-a-01000000-7.out", "worker-a-01000000-7.err"])
async def test_what_an_actor_printed_is_shown(tmp_path, name):
    (tmp_path / name).write_text("said\n")
    (tmp_path / "raylet.out").write_text("not this\n")
    assert await actors(tmp_path) == "said\n"


async def test_a_node_without_output_of_actors_is_reported(tmp_path):
    with pytest.raises(CommandError, match="no output of actors on this pod"):
        await actors(tmp_path)


async def test_lines_are_whole_wherever_the_stream_is_cut():
    async def cut():
        for piece in (b"on", b"e\ntw", "ö".encode()[:1], "ö".encode()[1:] + b"\n\nend"):
            yield piece

    assert [line async for line in whole_lines(cut())] == ["one", "twö", "", "end"]
