"""Completion of the command line, for shells and for kubectl itself.

kubectl completes `kubectl grpo ...` by the program `kubectl_complete-grpo` on the PATH: it calls it
with the words after `grpo`, the last one unfinished, and reads a candidate from each line, then a
directive. See https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/.
"""

import argparse
import sys
from collections.abc import Sequence

import shtab

SHELLS = ("bash", "zsh", "fish", "tcsh")
_NO_FILES = ":4"
"""Cobra's directive: do not complete names of files."""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The completion script of a shell for `kubectl-grpo`."""
    parser.prog = "kubectl-grpo"
    text: str = shtab.complete(parser, shell=shell)
    return text


def candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """What the last of the words may become: a command, an option or one of its values."""
    *before, last = words or [""]
    for word in before:
        parser = _commands(parser).get(word, parser)
    options = {name: action for action in parser._actions for name in action.option_strings}
    previous = options.get(before[-1]) if before else None
    if previous is not None and previous.choices is not None:
        found = [str(choice) for choice in previous.choices]
    elif previous is not None and previous.nargs is None:
        found = []  # a value that only the user knows
    elif last.startswith("-"):
        found = list(options)
    else:
        found = list(_commands(parser))
    return [text for text in found if text.startswith(last)]


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def main() -> int:
    """The program `kubectl_complete-grpo`."""
    from .cli import build_parser

    print(*candidates(build_parser(), sys.argv[1:]), _NO_FILES, sep="\n")
    return 0
