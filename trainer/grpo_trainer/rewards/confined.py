"""Runs an untrusted program once per test, each in a fork that first drops every right.

A separate script that `sandbox.py` starts with an empty environment; it imports nothing of the
package. Linux on x86_64 or aarch64; it needs no privilege and works in a restricted pod:

- resource limits on processor time, address space, file size and open files;
- all capabilities are dropped and cannot be regained;
- files, by one of `FileProtection`: none can be written or created, and none can be read outside
  the Python installation and the system's libraries (neither the data set nor `/proc`);
- a seccomp filter: no sockets, no other processes, no signals, no tracing, no shared memory.
  Threads are allowed; the address space limits their number.
"""

import ctypes
import errno
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
_SECCOMP_ALLOW, _SECCOMP_ERRNO, _SECCOMP_KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_CLONE_THREAD = 0x00010000
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 1, 2, 4, 32
_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_MS_LOCKABLE = 2 | 4 | 8 | 1024 | 2048
"""nosuid, nodev, noexec, noatime, nodiratime; the same numbers in `statvfs`."""

# System calls on (x86_64, aarch64), which share the numbers of all calls since 424.
_CLONE, _PRLIMIT64, _PRCTL = (56, 220), (302, 261), (157, 167)
_CLONE3 = 435
_DENIED = {
    "socket": (41, 198),
    "io_uring_setup": (425, 425),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "unshare": (272, 97),
    "setns": (308, 268),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
}

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


def _confine(parent: int, files: str, cpu_seconds: int, memory_bytes: int, file_bytes: int) -> None:
    """Drop every right; raises OSError if the kernel refuses."""
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
    program = _seccomp_program(os.uname().machine)
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


def _seccomp_program(machine: str) -> bytes:
    """A classic BPF program that refuses the denied calls of this machine and allows the rest."""
    if machine not in _AUDIT_ARCH:
        raise OSError(f"machine {machine!r} is not supported: x86_64 or aarch64")
    column = 0 if machine == "x86_64" else 1
    refuse = (_RETURN, 0, 0, _SECCOMP_ERRNO | errno.EPERM)
    allow = (_RETURN, 0, 0, _SECCOMP_ALLOW)
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _SECCOMP_KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_IF_AT_LEAST, 0, 1, _X32_BIT),
        refuse,
    ]
    for numbers in _DENIED.values():
        number = numbers[column]
        if number is not None:
            code += [(_IF_EQUAL, 0, 1, number), refuse]
    # A filter cannot read the flags of clone3, which are in memory; libc falls back to clone.
    code += [(_IF_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _SECCOMP_ERRNO | errno.ENOSYS)]
    first_argument = (_LOAD, 0, 0, _FIRST_ARGUMENT)
    threads_only = (_IF_ANY_BIT, 1, 0, _CLONE_THREAD)
    own_limits_only = (_IF_EQUAL, 1, 0, 0)
    not_outlive_parent = (_IF_EQUAL, 0, 1, _PR_SET_PDEATHSIG)
    for numbers, condition in (
        (_CLONE, threads_only),
        (_PRLIMIT64, own_limits_only),
        (_PRCTL, not_outlive_parent),
    ):
        code += [(_IF_EQUAL, 0, 4, numbers[column]), first_argument, condition, refuse, allow]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in [*code, allow])


def _prctl(option: int, *arguments: object) -> None:
    _check(_libc.prctl(option, *arguments, *[0] * (4 - len(arguments))))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


if __name__ == "__main__":
    main()
