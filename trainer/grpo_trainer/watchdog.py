"""Ends what is left of a local Ray when the driver is gone, however it went.

Ray's agents outlive a killed driver by a minute. This process waits for the end of its standard
input, which comes with the driver's, and then kills whatever has a file open in Ray's directory.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

_END_SECONDS = 30.0
_KILL_SECONDS = 1.0


@contextmanager
def watchdog(directory: Path) -> Iterator[None]:
    """Have somebody end this Ray and remove its directory, should this process be killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(directory)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        yield
    finally:
        process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # this process is alive, so there is nothing left to guard


def users_of(directory: Path) -> list[psutil.Process]:
    """Processes that have a file open in a directory, as all of a Ray have their logs.

    Ray's agents write over their own environment, so that a mark in it would not find them.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if any(Path(file.path).is_relative_to(directory) for file in process.open_files()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def main() -> None:
    """Wait for the driver's end, then clean up after it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    driver = os.getppid()
    sys.stdin.buffer.read()
    # One that was just being started may have been missed, but its parent is dead by then.
    while left := [process for process in users_of(directory) if process.pid != driver]:
        for process in left:
            process.kill()
        # No longer: a dead child of a living driver stays in the table until that one looks.
        psutil.wait_procs(left, timeout=_KILL_SECONDS)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
