"""The `code` reward: right if a program passes all tests of its row."""

import logging
import re
import time
from collections.abc import Sequence

from ..errors import InvalidInputError
from ..messages import Row, Score, TestCases
from ..row_faults import RowFault, refuse
from .base import Column, LocalReward, graded
from .confined import FileProtection
from .extraction import Extraction
from .outputs import is_json, same_output, same_result
from .sandbox import Sandbox, SandboxError, available_protection

_log = logging.getLogger(__name__)
TEST_SECONDS = 10.0
"""Longest run of a single test."""
_SHARE_OF_DEADLINE = 0.9  # a program that is too slow is wrong, not unscored
_PYTHON_BLOCK = re.compile(
    r"^[ \t]*```(?:python3?|py)[ \t]*\r?\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE | re.IGNORECASE
)


_UNCONFINED = "they can read and write what the trainer can, tokens and checkpoints included"


class Code(LocalReward):
    """Runs the last Python block of a completion on the tests of its row, until one fails."""

    columns = frozenset({Column.TESTS})
    system_prompt = (
        "Solve the problem with a Python program. Explain as much as you need, then end with one "
        "code block that opens with ```python and holds the complete program."
    )

    markers = ("```python",)
    files: FileProtection

    def check(self, rows: Sequence[Row]) -> None:
        if faults := [fault for row in rows if (fault := _row_fault(row))]:
            raise refuse(faults)
        self.load()
        if self.files is FileProtection.NONE:
            _log.warning("programs of completions run without file protection: %s", _UNCONFINED)
        else:
            _log.info("programs of completions run with file protection: %s", self.files)

    def load(self) -> None:
        try:
            self.files = available_protection()
        except SandboxError as error:
            raise InvalidInputError(
                f"{self.part.field}.type: Invalid value: 'code': {error}"
            ) from error
        if self.files is FileProtection.NONE and not self.part.allow_unconfined:
            raise InvalidInputError(
                f"{self.part.allow_unconfined_field}: Invalid value: false: this machine has "
                f"neither Landlock nor user namespaces: {_UNCONFINED}; run on Linux 5.13 or newer "
                "with Landlock enabled, or set it to true"
            )

    def score(self, text: str, row: Row) -> Score:
        assert row.tests is not None, "rows are checked at load"
        program = python_block(row.prefix + text)
        seconds = _SHARE_OF_DEADLINE * self.part.timeout_seconds
        right = program.answer is not None and passes(
            program.answer, row.tests, seconds=seconds, files=self.files
        )
        return graded(right=right, well_formed=program.well_formed)


def python_block(text: str) -> Extraction:
    """The last closed block fenced as Python; well-formed if it is not empty."""
    found = _PYTHON_BLOCK.findall(text)
    program = found[-1] if found and found[-1].strip() else None
    return Extraction(program, program is not None)


def passes(program: str, tests: TestCases, *, seconds: float, files: FileProtection) -> bool:
    """Whether the program ends each test in time and gives the expected output."""
    deadline = time.monotonic() + seconds
    longest = min(TEST_SECONDS, seconds)
    with Sandbox(program, seconds=longest, function=tests.function, files=files) as sandbox:
        for given, expected in zip(tests.inputs, tests.outputs, strict=True):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            execution = sandbox.run(given, seconds=min(longest, remaining))
            same = same_output if tests.function is None else same_result
            if not execution.ok or not same(expected, execution.output):
                return False
    return True


def _row_fault(row: Row) -> RowFault | None:
    """What is wrong with the test cases of a row."""
    tests = row.tests
    if tests is None or not tests.inputs:
        return RowFault(row.source, "at least one test case")
    if len(tests.inputs) != len(tests.outputs):
        value = f"{len(tests.inputs)} inputs and {len(tests.outputs)} outputs"
        return RowFault(row.source, "must be as many outputs as inputs", value)
    if tests.function is None:
        return None
    for number, (given, expected) in enumerate(zip(tests.inputs, tests.outputs, strict=True), 1):
        arguments = [line for line in given.split("\n") if line.strip()]
        for line in [*arguments, expected]:
            if not is_json(line):
                value = f"test {number} of function {tests.function!r}: {line[:80]!r}"
                requirement = "must be JSON, one argument per line and one result"
                return RowFault(row.source, requirement, value)
    return None


REWARD = Code
