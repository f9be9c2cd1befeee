"""Ends the processes of a local Ray after the driver has ended, for whatever reason.

Ray's agents outlive a killed driver by a minute. This process waits for the end of its standard
input, which ends with the driver, and then kills every process with a file open in Ray's directory.
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
    """End this Ray and remove its directory, also if this process is killed."""
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
            process.kill()  # this process is alive and has ended Ray itself


def users_of(directory: Path) -> list[psutil.Process]:
    """Processes with a file open in a directory: all of a Ray's processes have their logs there.

    Ray's agents overwrite their environment, so a variable in it would not identify them.
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
    """Wait for the end of the driver, then clean up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    driver = os.getppid()
    sys.stdin.buffer.read()
    # A process that was just starting may be missed once; its parent is dead by then.
    while left := [process for process in users_of(directory) if process.pid != driver]:
        for process in left:
            process.kill()
        # Bounded: a dead child of a living driver stays a zombie until the driver reaps it.
        psutil.wait_procs(left, timeout=_KILL_SECONDS)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
