"""SIGINT and SIGTERM at every moment of a run, on a terminal of its own."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, sys
from pathlib import Path
from grpo_trainer.driver.signals import StopSignals

signals = StopSignals()
signals.install()
if sys.argv[1] == "early":
    print("ready", flush=True)
    sys.stdin.readline()

async def run():
    stop = asyncio.Event()
    signals.attach(stop.set, remove=(Path(sys.argv[2]),))
    if sys.argv[1] == "loop":
        print("ready", flush=True)
    await stop.wait()
    print("stopping", flush=True)
    if len(sys.argv) > 3:
        await asyncio.sleep(60)

asyncio.run(run())
"""


def start(*arguments: str, **streams: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **streams},
    )


def read_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


def read_until(terminal: int, text: bytes) -> None:
    """Raises OSError when the program ends before it prints the text."""
    output = b""
    while text not in output:
        output += os.read(terminal, 100)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_requests_a_stop(tmp_path: Path, number: signal.Signals) -> None:
    process = start("loop", str(tmp_path / "endpoint"))
    assert read_line(process) == "ready"
    process.send_signal(number)
    assert read_line(process) == "stopping"
    assert process.wait(20) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_event_loop_is_kept(tmp_path: Path, number: signal.Signals) -> None:
    process = start("early", str(tmp_path / "endpoint"))
    assert read_line(process) == "ready"
    process.send_signal(number)
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert read_line(process) == "stopping"
    assert process.wait(20) == 0


def test_the_second_signal_removes_the_files_and_shows_the_cursor(tmp_path: Path) -> None:
    endpoint = tmp_path / "endpoint"
    endpoint.write_text("http://127.0.0.1")
    ours, theirs = pty.openpty()
    process = start("loop", str(endpoint), "hang", stdout=theirs)
    os.close(theirs)
    read_until(ours, b"ready")
    process.send_signal(signal.SIGINT)
    read_until(ours, b"stopping")
    process.send_signal(signal.SIGINT)
    read_until(ours, b"\x1b[?25h")
    assert process.wait(20) == 130
    os.close(ours)
    assert not endpoint.exists()
