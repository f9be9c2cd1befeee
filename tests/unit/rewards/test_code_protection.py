"""The code reward on kernels without Landlock: what it uses instead, and that it fails closed.

The kernel's refusal is real: the process under test has a seccomp filter that makes it lack the
system calls, as on an older kernel (Landlock) or under a pod's default profile (namespaces).
"""

import subprocess
import sys

import pytest

from grpo_trainer.rewards import code_protection
from grpo_trainer.spec import GRPOJobSpec

LANDLOCK, UNSHARE, MOUNT = 444, 272, 165  # on x86_64; Landlock's number is the same on aarch64
SCRIPT = """
import ctypes, logging, os, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
code = [(0x20, 0, 0, 0)]
for number, error in {missing}:
    code += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | error)]
code += [(0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *c) for c in code))
filter_ = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_char_p(filter_), 0, 0) == 0

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.messages import Message, Row, TestCases
from grpo_trainer.rewards import check_rows, code_protection, make_reward
from grpo_trainer.spec import GRPOJobSpec
from grpo_trainer.spec.reward import RewardSpec

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
spec = RewardSpec(type="code", allow_unconfined={allow})
row = Row("row 1", (Message("user", "?"),), tests=TestCases(("",), ("yes\\n",)))
program = "try:\\n open('/etc/passwd')\\n print('yes')\\nexcept OSError:\\n print('no')"
try:
    check_rows([row], spec)
    completion = f"```python\\n{{program}}\\n```"
    print("reported:", code_protection(GRPOJobSpec(reward=spec)))
    print("reads a file:", make_reward(spec)(completion, row).accuracy)
except InvalidInputError as error:
    print("refused:", error)
"""


def outcome(*missing: tuple[int, int], allow: bool = False) -> str:
    script = SCRIPT.format(missing=missing, allow=allow)
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


NO_LANDLOCK, NO_NAMESPACES = (LANDLOCK, 38), (UNSHARE, 1)


def test_without_landlock_programs_run_in_namespaces_of_their_own():
    text = outcome(NO_LANDLOCK)
    assert "file protection: namespaces" in text
    assert "reported: namespaces" in text
    assert "reads a file: 0.0" in text


def test_with_landlock_it_is_used():
    text = outcome(NO_NAMESPACES)
    assert "file protection: landlock" in text
    assert "reported: landlock" in text
    assert "reads a file: 0.0" in text


@pytest.mark.parametrize("refused", [UNSHARE, MOUNT])
def test_without_either_the_reward_refuses_to_start(refused):
    text = outcome(NO_LANDLOCK, (refused, 1))
    assert "refused: spec.reward.allowUnconfined: Invalid value: false" in text
    assert "neither Landlock nor user namespaces" in text


def test_the_user_may_accept_programs_without_file_protection():
    text = outcome(NO_LANDLOCK, NO_NAMESPACES, allow=True)
    assert "programs of completions run without file protection" in text
    assert "reported: none" in text
    assert "reads a file: 1.0" in text


def test_without_the_code_reward_nothing_is_reported():
    assert code_protection(GRPOJobSpec()) is None
