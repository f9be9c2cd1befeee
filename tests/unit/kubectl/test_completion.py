"""Completion of the plugin's command line.

Aspects: the candidates that kubectl asks for; its directive; the scripts of shells.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from grpo_kubectl.cli import build_parser, main
from grpo_kubectl.completion import SHELLS, candidates


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["sus"], ["suspend"]),
        (["-n", "lab", "check"], ["checkpoints"]),
        (["logs", "math", "--ro"], ["--role"]),
        (["logs", "math", "--role", "h"], ["head"]),
        (["logs", "math", "--tail", ""], []),
        (["status", ""], []),
        (["wait", "math", "--for", "Su"], ["Suspending", "Suspended", "Succeeded"]),
    ],
    ids=" ".join,
)
def test_a_word_is_completed(words, found):
    assert sorted(candidates(build_parser(), words)) == sorted(found)


def test_without_a_word_every_command_is_offered():
    assert {"list", "status", "copy-checkpoint"} <= set(candidates(build_parser(), []))


def test_kubectl_gets_candidates_and_a_directive():
    program = Path(sys.executable).with_name("kubectl_complete-grpo")
    assert subprocess.check_output([program, "sca"], text=True) == "scale\n:4\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_a_script(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "copy-checkpoint" in capsys.readouterr().out
