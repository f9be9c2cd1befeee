"""Background processes that are recorded on disk, so that they, and nothing else, can be stopped.

A pid alone may have been given to somebody else in the meantime: a process is known by its pid
and its start time, and is signalled through a pidfd, which never changes its owner.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class Process:
    name: str
    pid: int
    start_time: int
    """Clock ticks since boot."""


class Record:
    """The file that lists the processes of one cluster, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def spawn(
        self, name: str, argv: Sequence[str], *, log: Path, cwd: Path, die_with_parent: bool
    ) -> Process:
        """Starts `argv` in a session of its own, its output in `log`.

        With `die_with_parent` the kernel kills it when this process ends, however it ends.
        """
        with log.open("wb") as output:
            child = subprocess.Popen(
                argv,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent if die_with_parent else None,
            )
        return self.add(name, child.pid)

    def add(self, name: str, pid: int) -> Process:
        """Takes down a process that runs already."""
        process = Process(name, pid, _start_time(pid))
        with self._path.open("a") as record:
            record.write(json.dumps(asdict(process)) + "\n")
        return process

    @contextlib.contextmanager
    def pidfds(self) -> Iterator[dict[int, Process]]:
        """The recorded processes that still exist, by pidfd, which is readable once one ended."""
        with contextlib.ExitStack() as stack:
            opened = {}
            for process in self._read():
                with contextlib.suppress(ProcessLookupError):
                    pidfd = os.pidfd_open(process.pid)
                    stack.callback(os.close, pidfd)
                    # Read after the pidfd is held: from here on the pid cannot change its owner.
                    if _start_time(process.pid) == process.start_time:
                        opened[pidfd] = process
            yield opened

    def running(self) -> list[Process]:
        with self.pidfds() as pidfds:
            ended = _ended(pidfds, seconds=0)
            return [process for pidfd, process in pidfds.items() if pidfd not in ended]

    def ended(self) -> list[str]:
        """The names of the recorded processes that run no more."""
        running = self.running()
        return [process.name for process in self._read() if process not in running]

    def stop_all(self, *, grace_seconds: float) -> None:
        """Asks every process to end, kills those that have not after `grace_seconds`, forgets all.

        Raises:
            TimeoutError: a process survived SIGKILL; the record is kept.
        """
        with self.pidfds() as pidfds:
            left = set(pidfds)
            for signum, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 10.0)):
                for pidfd in left:
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(pidfd, signum)
                left -= _wait_for_all(left, seconds)
            if left:
                names = ", ".join(sorted(pidfds[pidfd].name for pidfd in left))
                raise TimeoutError(f"still running after SIGKILL: {names}")
        self._path.unlink(missing_ok=True)

    def _read(self) -> list[Process]:
        if not self._path.exists():
            return []
        return [Process(**json.loads(line)) for line in self._path.read_text().splitlines()]


def _die_with_parent() -> None:
    if _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def _start_time(pid: int) -> int:
    """Field 22 of /proc/PID/stat, in clock ticks since boot.

    Raises:
        ProcessLookupError: there is no such process.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error
    after_command = stat.rpartition(")")[2]  # the command, field 2, may hold spaces
    return int(after_command.split()[22 - 3])


def _ended(pidfds: Iterable[int], *, seconds: float) -> set[int]:
    """Those of `pidfds` whose process has ended, waiting up to `seconds` for the first."""
    return set(select.select(list(pidfds), [], [], seconds)[0])


def _wait_for_all(pidfds: Iterable[int], seconds: float) -> set[int]:
    """Those of `pidfds` whose process has ended within `seconds`."""
    deadline = time.monotonic() + seconds
    left, ended = set(pidfds), set[int]()
    while left and (remaining := deadline - time.monotonic()) > 0:
        ended |= _ended(left, seconds=remaining)
        left -= ended
    return ended
