"""Runs an untrusted program on tests, in processes that `confined.py` confines."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from .confined import CONFINEMENT_FAILED, FileProtection, landlock_version
from .seccomp import MACHINES, filter_program

MEMORY_BYTES = 1 << 30
OUTPUT_BYTES = 16 << 20
_TRY_SECONDS = 10.0
_SCRIPT = Path(__file__).with_name("confined.py")
_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "PATH": "/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    # A thread pool per process would exhaust the address space.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class SandboxError(RuntimeError):
    """The sandbox itself failed; the program is neither right nor wrong."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a program."""

    ok: bool
    """Whether it exited in time and without an error."""
    output: str
    """Its standard output, or its function's result as JSON; undecodable bytes are replaced."""


class Sandbox:
    """A Python program in a temporary directory; the `with` block ends and removes both.

    With `function`, each run calls that function (of the module, or of its class `Solution`) with
    one argument per line of JSON, instead of running the program on standard input. A run fails
    if the kernel lacks the file protection.
    """

    def __init__(
        self,
        source: str,
        *,
        seconds: float,
        function: str | None = None,
        files: FileProtection = FileProtection.LANDLOCK,
    ) -> None:
        self._source = source
        self._seconds = seconds
        self._function = function
        self._files = files

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="grpo-program-")
        self._path = Path(self._directory.name)
        program = self._source.encode(errors="surrogatepass")
        (self._path / "program.py").write_bytes(program)
        self._control, theirs = socket.socketpair()
        with theirs, (self._path / "stderr").open("wb") as stderr:
            self._process = subprocess.Popen(
                self._command(theirs.fileno()),
                cwd=self._path,
                env=_ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._control.close()
        os.killpg(self._process.pid, signal.SIGKILL)  # not reaped yet, so the id is not reused
        self._process.wait()
        self._directory.cleanup()

    def run(self, stdin: str, *, seconds: float) -> Execution:
        """One run in a fresh process; after a run that exceeds `seconds` there must be no other.

        Raises SandboxError if the process cannot be confined.
        """
        (self._path / "stdin").write_bytes(stdin.encode(errors="surrogatepass"))
        self._control.settimeout(seconds)
        try:
            self._control.send(b"\0")
            status = self._control.recv(1)
        except TimeoutError:
            return Execution(False, self._read("stdout"))
        if not status or status[0] == CONFINEMENT_FAILED:
            reason = self._read("stderr")[:500] or "its process exited"
            raise SandboxError(f"a program cannot be confined: {reason}")
        return Execution(status[0] == 0, self._read("stdout"))

    def _command(self, control: int) -> list[str]:
        confinement = {
            "files": self._files,
            "seccomp": filter_program(os.uname().machine).hex(),
            "cpu_seconds": int(self._seconds) + 1,
            "memory_bytes": MEMORY_BYTES,
            "file_bytes": OUTPUT_BYTES,
        }
        arguments = [str(control), str(os.getpid()), self._function or "", json.dumps(confinement)]
        # -P: the script's own directory, this package, must not shadow standard modules.
        return [sys.executable, "-s", "-P", str(_SCRIPT), *arguments]

    def _read(self, name: str) -> str:
        return (self._path / name).read_text(encoding="utf-8", errors="replace")


def available_protection() -> FileProtection:
    """The file protection of this machine: NONE without Landlock and namespaces.

    Raises SandboxError if a program cannot be confined even without one.
    """
    machine = os.uname().machine
    if machine not in MACHINES:
        raise SandboxError(f"machine {machine!r} is not supported: must be {' or '.join(MACHINES)}")
    if landlock_version():
        _try(FileProtection.LANDLOCK)
        return FileProtection.LANDLOCK
    try:
        _try(FileProtection.NAMESPACES)
        return FileProtection.NAMESPACES
    except SandboxError:
        _try(FileProtection.NONE)
        return FileProtection.NONE


def _try(files: FileProtection) -> None:
    with Sandbox("", seconds=_TRY_SECONDS, files=files) as sandbox:
        sandbox.run("", seconds=_TRY_SECONDS)
