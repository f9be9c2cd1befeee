"""The postStart hook of every pod: copies the output of driver and actors to the volume and to the
container's log.

Ray writes it to files on the pod's own disk, which are lost with the pod. Standard library only. A
copy is rotated, the copies of a pod are bounded, and so is the number of pods that are kept.

Usage: collect.py ROLE PODS
"""

import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

SOURCE = Path(os.environ.get("GRPO_RAY_LOGS", "/tmp/ray/session_latest/logs"))
PATTERNS = ("job-driver-*.log", "worker-*.out", "worker-*.err")
# The log of a container is the output of its first process.
CONTAINER_LOG = os.environ.get("GRPO_CONTAINER_LOG", "/proc/1/fd/1")
SECONDS = 1.0
FILE_BYTES = int(os.environ.get("GRPO_LOG_FILE_BYTES", 8 << 20))
POD_BYTES = int(os.environ.get("GRPO_LOG_POD_BYTES", 64 << 20))
READ_BYTES = 1 << 20


class Copy:
    """The copy of one file; FILE_BYTES of it at most, and as much before them."""

    def __init__(self, source: Path, target: Path) -> None:
        self.source, self.target = source, target
        self.position = 0

    def advance(self) -> bytes:
        """Append what is new in whole lines; returns it."""
        with self.source.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self.position:  # rotated by Ray
                self.position = 0
            file.seek(self.position)
            text = file.read(READ_BYTES)
        # A line that is longer than one read is split.
        end = text.rfind(b"\n") + 1 or (len(text) if len(text) == READ_BYTES else 0)
        if end:
            self.position += end
            self.append(text[:end])
        return text[:end]

    def append(self, text: bytes) -> None:
        with self.target.open("ab") as file:
            file.write(text)
            full = file.tell() > FILE_BYTES
        if full:
            self.target.replace(self.target.with_name(f"{self.target.name}.1"))


def collect(directory: Path, log: BinaryIO | None) -> None:
    """Copy until the container ends."""
    copies: dict[Path, Copy] = {}
    while True:
        for source in sorted(path for pattern in PATTERNS for path in SOURCE.glob(pattern)):
            copy = copies.setdefault(source, Copy(source, directory / source.name))
            try:
                text = copy.advance()
                if log is not None and text:
                    log.write(text)
            except OSError:
                continue  # a full volume drops output; it must not end the copies of other files
        with suppress(OSError):  # likewise
            remove_oldest(directory)
        time.sleep(SECONDS)


def remove_oldest(directory: Path) -> None:
    """Remove the oldest copies beyond POD_BYTES."""
    files = sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    total = 0
    for path in files:
        total += path.stat().st_size
        if total > POD_BYTES:
            path.unlink()


def remove_old_pods(directory: Path, keep: int) -> None:
    """Remove the directories of all but the newest pods."""
    pods = sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for pod in pods[keep:]:
        shutil.rmtree(pod, ignore_errors=True)  # another pod may remove it at the same time


def container_log() -> BinaryIO | None:
    """The container's log; None where the first process belongs to another user."""
    try:
        return open(CONTAINER_LOG, "ab", buffering=0)
    except OSError:
        return None


def main() -> None:
    role, keep = sys.argv[1], int(sys.argv[2])
    pods = Path(os.environ["GRPO_RUN_DIR"]) / "logs" / "pods" / role
    directory = pods / os.environ["HOSTNAME"]
    directory.mkdir(parents=True, exist_ok=True)
    remove_old_pods(pods, keep)
    collect(directory, container_log())


main()
