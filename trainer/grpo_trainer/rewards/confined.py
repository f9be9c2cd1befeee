"""Runs an untrusted program once per test, each in a fork that first drops every right.

A separate script that `sandbox.py` starts with an empty environment; it imports nothing of the
package. Linux on x86_64 or aarch64; it needs no privilege and works in a restricted pod:

- resource limits on processor time, address space, file size and open files;
- all capabilities are dropped and cannot be regained;
- files, by one of `FileProtection`: none can be written or created, and none can be read outside
  the Python installation and the system's libraries (neither the data set nor `/proc`);
- a seccomp filter, built by `seccomp.py`: no sockets, no other processes, no signals, no tracing,
  no shared memory. Threads are allowed; the address space limits their number.
"""

import ctypes
import json
import os
import resource
import signal
import struct
import sys
import types
from enum import StrEnum
from typing import Any

CONFINEMENT_FAILED = 125


class FileProtection(StrEnum):
    """What keeps a program from files; anything but NONE fails where the kernel lacks it."""

    LANDLOCK = "landlock"
    """Linux 5.13 or newer, if enabled."""
    NAMESPACES = "namespaces"
    """A user and a mount namespace with a root of their own, where the node and the pod's seccomp
    profile allow them: gVisor, or older kernels."""
    NONE = "none"
    """File permissions alone: a program can read what the user can, `/proc` included."""


_PRELUDE = """
import bisect, collections, functools, heapq, itertools, math, re, string
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from typing import *
"""
"""What contest sites import for their function tasks."""

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_SECCOMP_MODE_FILTER = 2
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 1, 2, 4, 32
_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_MS_LOCKABLE = 2 | 4 | 8 | 1024 | 2048
"""nosuid, nodev, noexec, noatime, nodiratime; the same numbers in `statvfs`."""
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION_FLAG, _LANDLOCK_PATH_BENEATH = 1, 1
_LANDLOCK_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # number of file rights by ABI version
_LANDLOCK_WRITE_FILE, _LANDLOCK_READ_FILE, _LANDLOCK_READ_DIR = 1 << 1, 1 << 2, 1 << 3
_READABLE = ("/usr", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/localtime")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def main() -> None:
    """Arguments: control descriptor, parent's process id, function or "", `_confine`'s as JSON.

    Each byte read from the control descriptor requests a run on the file `stdin`; the response is
    a byte with the exit status. The program is `program.py`; both are in the working directory.
    """
    control, parent, function = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    confinement = json.loads(sys.argv[4])
    _die_with(parent)
    server = os.getpid()
    while os.read(control, 1):
        child = os.fork()
        if child == 0:
            os.close(control)
            _execute(server, function, confinement)
            return  # the interpreter exits as after any script: threads joined, output flushed
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(control, bytes([status if status >= 0 else 1]))


def _execute(server: int, function: str, confinement: dict[str, Any]) -> None:
    try:
        _die_with(server)
        with open("program.py", encoding="utf-8", errors="surrogateescape") as file:
            source = file.read()
        _redirect(0, "stdin", os.O_RDONLY)
        _redirect(1, "stdout", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        _confine(server, **confinement)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(CONFINEMENT_FAILED)
    if function:
        _call(source, function)
    else:
        _run(source, "__main__")


def _redirect(descriptor: int, path: str, flags: int) -> None:
    file = os.open(path, flags)
    os.dup2(file, descriptor)
    os.close(file)


def _run(source: str, name: str, prelude: str = "") -> types.ModuleType:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(prelude, module.__dict__)
    exec(compile(source, "<program>", "exec"), module.__dict__)
    return module


def _call(source: str, function: str) -> None:
    """Call with one argument per line of JSON; print the result, and nothing else, as JSON."""
    arguments = [json.loads(line) for line in sys.stdin.read().split("\n") if line.strip()]
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    module = _run(source, "program", _PRELUDE)
    owner = module.Solution() if hasattr(module, "Solution") else module
    json.dump(getattr(owner, function)(*arguments), answer)
    answer.close()


def _confine(
    parent: int, files: str, seccomp: str, cpu_seconds: int, memory_bytes: int, file_bytes: int
) -> None:
    """Drop every right; `seccomp` is the filter in hex. Raises OSError if the kernel refuses."""
    if files == FileProtection.NAMESPACES:
        _change_root()
        _die_with(parent)  # a new user namespace clears it
    for kind, limit in (
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    header = struct.pack("II", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    _check(_libc.capset(header, bytes(24)))
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if files == FileProtection.LANDLOCK:
        _restrict_files()
    program = bytes.fromhex(seccomp)
    buffer = ctypes.create_string_buffer(program)
    filter_ = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.c_char_p(filter_))


def _die_with(parent: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise OSError("the parent process has exited")


def landlock_version() -> int:
    """Version of the kernel's Landlock interface, 0 without support."""
    query = (None, ctypes.c_size_t(0), _LANDLOCK_VERSION_FLAG)
    return max(0, int(_libc.syscall(_LANDLOCK_CREATE, *query)))


def _restrict_files() -> None:
    version = landlock_version()
    if not version:
        raise OSError("this kernel has no Landlock")
    handled = (1 << _LANDLOCK_RIGHTS[min(version, max(_LANDLOCK_RIGHTS))]) - 1
    ruleset = _check(
        _libc.syscall(_LANDLOCK_CREATE, struct.pack("Q", handled), ctypes.c_size_t(8), 0)
    )
    read = _LANDLOCK_READ_FILE | _LANDLOCK_READ_DIR
    for path in _readable():
        _allow(ruleset, path, read)
    for path in _DEVICES:
        _allow(ruleset, path, _LANDLOCK_READ_FILE | _LANDLOCK_WRITE_FILE)
    _check(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)


def _readable() -> list[str]:
    """What the interpreter and its libraries need; parents before what is inside them."""
    paths = {*_READABLE, sys.prefix, sys.base_prefix, *sys.path}
    return sorted(path for path in paths if path and os.path.exists(path))


def _change_root() -> None:
    """Enter user and mount namespaces whose root holds only the readable paths, read-only."""
    user, group = os.getuid(), os.getgid()
    _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    _mount(None, "/", _MS_PRIVATE | _MS_REC)
    root = os.path.abspath("root")
    os.makedirs(root, exist_ok=True)
    _mount("tmpfs", root, _MS_NOSUID | _MS_NODEV, "tmpfs")
    for path in _readable():
        _bind(path, root)
    for path in _DEVICES:
        _bind(path, root, read_only=False)
    _mount(None, root, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    os.chroot(root)
    os.chdir("/")


def _bind(path: str, root: str, *, read_only: bool = True) -> None:
    target = root + path
    if os.path.lexists(target):  # inside one that is there already
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT))
    _mount(path, target, _MS_BIND | _MS_REC)
    if read_only:
        # Flags that the mount has already are locked in a user namespace, and must be kept.
        kept = os.statvfs(target).f_flag & _MS_LOCKABLE
        _mount(None, target, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | kept)


def _mount(source: str | None, target: str, flags: int, kind: str | None = None) -> None:
    names = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _check(_libc.mount(*names, ctypes.c_ulong(flags), None))


def _allow(ruleset: int, path: str, rights: int) -> None:
    if not os.path.isdir(path):
        rights &= ~_LANDLOCK_READ_DIR
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = struct.pack("=Qi", rights, descriptor)
    _check(_libc.syscall(_LANDLOCK_ADD, ruleset, _LANDLOCK_PATH_BENEATH, rule, 0))
    os.close(descriptor)


def _prctl(option: int, *arguments: object) -> None:
    _check(_libc.prctl(option, *arguments, *[0] * (4 - len(arguments))))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


if __name__ == "__main__":
    main()
