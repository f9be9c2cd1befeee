"""Untrusted programs: what they can do, what they cannot reach, and that they are ended."""

import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from grpo_trainer.rewards.confined import FileProtection
from grpo_trainer.rewards.sandbox import OUTPUT_BYTES, Execution, Sandbox, available_protection

SECONDS = 30.0


PROTECTED = [FileProtection.LANDLOCK, FileProtection.NAMESPACES]


def run(
    program: str,
    stdin: str = "",
    seconds: float = SECONDS,
    function: str | None = None,
    files: FileProtection = FileProtection.LANDLOCK,
):
    with Sandbox(program, seconds=seconds, function=function, files=files) as sandbox:
        return sandbox.run(stdin, seconds=seconds)


def test_a_program_reads_its_input_and_its_output_is_kept():
    assert run("print(int(input()) * 2)", "21\n") == Execution(True, "42\n")


def test_every_run_starts_in_a_fresh_process():
    program = "import math\nprint(getattr(math, 'used', 'fresh'))\nmath.used = 'stale'"
    with Sandbox(program, seconds=SECONDS) as sandbox:
        outputs = [sandbox.run("", seconds=SECONDS).output for _ in range(2)]
    assert outputs == ["fresh\n", "fresh\n"]


def test_threads_and_exit_handlers_of_a_program_finish():
    program = (
        "import atexit, threading\natexit.register(print, 'end')\n"
        "threading.Thread(target=print, args=('thread',)).start()"
    )
    assert run(program).output.split() == ["thread", "end"]


def test_numpy_can_be_used():
    assert run("import numpy\nprint(numpy.arange(5).sum())").output == "10\n"


@pytest.mark.parametrize(
    "program", ["raise ValueError", "exit(1)", "import os; os.abort()", "1 +", "print('\\ud800')"]
)
def test_a_program_that_ends_in_an_error_is_not_ok(program):
    assert not run(program).ok


def test_a_function_receives_one_argument_per_line_and_its_result_is_json():
    program = "def add(a, b):\n    print('noise')\n    return [a + b, (a, b)]"
    assert run(program, "1\n2\n", function="add").output == "[3, [1, 2]]"


def test_a_line_separator_inside_an_argument_does_not_end_it():
    assert run("def size(text): return len(text)", '"a\u2028b"', function="size").output == "3"


def test_a_method_of_solution_can_use_what_contest_sites_import():
    program = "class Solution:\n    def total(self, n: List[int]) -> int:\n        return sum(n)"
    assert run(program, "[1, 2, 3]", function="total").output == "6"


def refused(body: str, files: FileProtection = FileProtection.LANDLOCK) -> str:
    """The error that the body meets, `none` if it gets through."""
    indented = body.replace("\n", "\n    ")
    program = (
        f"try:\n    {indented}\nexcept BaseException as e:\n    print(type(e).__name__)\n"
        "else:\n    print('none')"
    )
    execution = run(program, files=files)
    assert execution.ok
    return execution.output.splitlines()[-1]


DENIED = {"PermissionError", "FileNotFoundError", "OSError"}
"""OSError: a read-only file system."""


@pytest.mark.parametrize(
    "body",
    [
        "import socket\nsocket.socket()",
        "import socket\nsocket.create_connection(('127.0.0.1', 80))",
        "import socket\nsocket.socket(socket.AF_UNIX)",
        "import os\nos.fork()",
        "import subprocess\nsubprocess.run(['/bin/true'])",
        "import multiprocessing\nmultiprocessing.Process(target=print).start()",
        "import os\nos.execv('/bin/true', ['true'])",
        "import os\nos.kill(os.getppid(), 0)",
        "import os\nos.killpg(0, 0)",
        "import signal\nsignal.pidfd_send_signal(0, 0)",
        "import os\nos.setsid()",
        "import os\nos.chmod('/tmp', 0o777)",
        "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU)",
        "import os\nos.sched_setaffinity(os.getppid(), {0})",
    ],
)
def test_network_processes_signals_and_other_processes_limits_are_refused(body):
    assert refused(body) == "PermissionError"


def test_a_listening_socket_of_this_machine_cannot_be_reached():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        assert refused(f"import socket\nsocket.create_connection({address})") == "PermissionError"


@pytest.mark.parametrize(
    "call", ["unshare(0x10000000)", "ptrace(0, 0, 0, 0)", "syscall(425, 1, 0)", "prctl(1, 0)"]
)
def test_namespaces_tracing_io_uring_and_outliving_the_parent_are_refused(call):
    program = f"import ctypes\nprint(ctypes.CDLL(None).{call})"
    assert run(program).output == "-1\n"


def test_limits_cannot_be_raised_again():
    body = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))"
    assert refused(body) == "ValueError"


def test_nothing_of_the_environment_is_inherited(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    assert "secret" not in run("import os\nprint(dict(os.environ))").output


def test_memory_is_bounded():
    assert refused("b = bytearray(2 << 30)") == "MemoryError"


def test_output_is_bounded():
    execution = run("while True:\n    print('x' * 1000)")
    assert not execution.ok
    assert len(execution.output) <= OUTPUT_BYTES


@pytest.mark.parametrize(
    "program",
    [
        "while True: pass",
        "import time; time.sleep(1000)",
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(1000)",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
    ],
)
def test_a_program_that_does_not_end_is_killed_at_its_deadline(program):
    started = time.monotonic()
    assert run(program, seconds=1) == Execution(False, "")
    assert time.monotonic() - started < 60  # far below the program's own sleep


def test_a_program_that_starts_endless_threads_is_killed():
    program = (
        "import threading, time\nwhile True:\n"
        "    threading.Thread(target=time.sleep, args=(1000,)).start()"
    )
    assert not run(program, seconds=2).ok


def test_a_program_ends_when_the_process_that_runs_it_is_killed(tmp_path):
    script = (
        "import time\nfrom grpo_trainer.rewards.sandbox import Sandbox\n"
        "program = 'import os, time; print(os.getpid(), flush=True); time.sleep(1000)'\n"
        "with Sandbox(program, seconds=5) as sandbox:\n"
        "    print(sandbox.run('', seconds=5).output, flush=True)\n    time.sleep(1000)"
    )
    command, environment = [sys.executable, "-c", script], {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as runner:
        assert runner.stdout is not None
        program = os.pidfd_open(int(runner.stdout.readline()))
        runner.kill()
    assert select.select([program], [], [], 30)[0] == [program]
    os.close(program)


def test_the_temporary_directory_is_removed(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run("import os; print(os.getcwd())").output.startswith(str(tmp_path))
    run("while True: pass", seconds=0.5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("files", PROTECTED)
@pytest.mark.parametrize(
    "path", ["x", "/x", "/tmp/x", "{home}/x", "stdin", "/dev/shm/x", "/usr/x", "{prefix}/x"]
)
def test_no_file_can_be_written(path, files):
    body = f"open({path.format(home=Path.home(), prefix=sys.prefix)!r}, 'w')"
    assert refused(body, files) in DENIED


@pytest.mark.parametrize("files", PROTECTED)
def test_no_file_can_be_removed_or_read_outside_the_python_installation(tmp_path, files):
    (tmp_path / "data.jsonl").write_text('{"outputs": ["42"]}')
    path = str(tmp_path / "data.jsonl")
    assert refused(f"open({path!r})", files) in DENIED
    assert refused(f"import os\nos.remove({path!r})", files) in DENIED
    assert refused("import os\nos.listdir('/etc/ssl')", files) in DENIED


@pytest.mark.parametrize("files", PROTECTED)
@pytest.mark.parametrize("process", ["self", "1", str(os.getpid())], ids=["own", "init", "parent"])
def test_the_environment_of_no_process_can_be_read(process, files):
    assert refused(f"open('/proc/{process}/environ')", files) in DENIED


@pytest.mark.parametrize("files", PROTECTED)
def test_libraries_can_be_used_under_either_file_protection(files):
    program = "import numpy, sys, zoneinfo\nprint(numpy.arange(int(input())).sum())"
    with Sandbox(program, seconds=SECONDS, files=files) as sandbox:
        outputs = [sandbox.run("5", seconds=SECONDS).output for _ in range(2)]
    assert outputs == ["10\n", "10\n"]


@pytest.mark.parametrize("files", PROTECTED)
def test_mounts_and_another_root_are_refused(files):
    for call in ("mount(None, b'/', None, 32, None)", "chroot(b'/usr')", "unshare(0x10000000)"):
        program = f"import ctypes\nprint(ctypes.CDLL(None).{call})"
        assert run(program, files=files).output == "-1\n"


def test_without_file_protection_a_program_reads_any_file_of_the_user():
    assert refused("open('/etc/passwd')", FileProtection.NONE) == "none"


def test_this_machine_has_landlock():
    assert available_protection() is FileProtection.LANDLOCK
