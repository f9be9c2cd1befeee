"""The seccomp filter of a confined program: a classic BPF program that refuses system calls."""

import errno
import struct

_SECCOMP_ALLOW, _SECCOMP_ERRNO, _SECCOMP_KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
MACHINES = ("x86_64", "aarch64")
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_CLONE_THREAD = 0x00010000

# System calls on each of MACHINES, which share the numbers of all calls since 424.
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
_PR_SET_PDEATHSIG = 1


def filter_program(machine: str) -> bytes:
    """A classic BPF program that refuses the denied calls of this machine and allows the rest."""
    column = MACHINES.index(machine)
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
