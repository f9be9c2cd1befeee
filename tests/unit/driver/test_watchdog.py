"""The watchdog of a local Ray: it ends what the driver leaves, and nothing else."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from grpo_trainer.watchdog import users_of, watchdog

DRIVER = """
import os, sys
from pathlib import Path
from grpo_trainer.watchdog import watchdog
with watchdog(Path(sys.argv[1])):
    print("guarded", flush=True)
    sys.stdin.read()
    os._exit(1)
"""
HOLDER = "import sys; f = open(sys.argv[1], 'w'); print('open', flush=True); sys.stdin.read()"


def start(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "ray"
    path.mkdir()
    return path


@pytest.fixture
def agent(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Something of Ray's that has its log open."""
    process = start(HOLDER, str(directory / "agent.log"))
    yield process
    process.kill()
    process.communicate()


def test_users_of_a_directory_are_found_by_their_open_files(
    directory: Path, agent: subprocess.Popen[bytes]
) -> None:
    assert [process.pid for process in users_of(directory)] == [agent.pid]


def test_what_a_killed_driver_leaves_is_ended_and_removed(
    directory: Path, agent: subprocess.Popen[bytes]
) -> None:
    driver = start(DRIVER, str(directory))
    driver.kill()
    assert agent.wait(30) != 0
    # The watchdog holds the same pipe, so that the end of one is the end of both.
    driver.communicate(timeout=60)
    assert not directory.exists()


def test_an_orderly_end_leaves_the_driver_alive(directory: Path) -> None:
    with (directory / "driver.log").open("w"), watchdog(directory):
        pass
    assert psutil.Process().is_running()
