"""The `code` reward: right when a program passes all of its row's tests."""

import json
import math
import re
import time
from typing import Any

from ..errors import InvalidInputError
from ..messages import Row, Score, TestCases
from .formats import python_block
from .sandbox import Sandbox, SandboxError
from .scores import graded

TEST_SECONDS = 10.0
"""Longest run of a single test."""
_SHARE_OF_DEADLINE = 0.9  # a program that is too slow is wrong, rather than not to be scored
_RELATIVE, _ABSOLUTE = 1e-5, 1e-8
_INTEGER = re.compile(r"[+-]?\d+")


def score_code(text: str, row: Row, *, timeout_seconds: float) -> Score:
    """Run the completion's last Python block on the row's tests, until one fails."""
    assert row.tests is not None, "rows are checked at load"
    program = python_block(text)
    seconds = _SHARE_OF_DEADLINE * timeout_seconds
    right = program.answer is not None and passes(program.answer, row.tests, seconds=seconds)
    return graded(right=right, well_formed=program.well_formed)


def passes(program: str, tests: TestCases, *, seconds: float) -> bool:
    """Whether the program ends each test in time and gives the expected output."""
    deadline = time.monotonic() + seconds
    longest = min(TEST_SECONDS, seconds)
    with Sandbox(program, seconds=longest, function=tests.function) as sandbox:
        for given, expected in zip(tests.inputs, tests.outputs, strict=True):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            execution = sandbox.run(given, seconds=min(longest, remaining))
            same = same_output if tests.function is None else same_result
            if not execution.ok or not same(expected, execution.output):
                return False
    return True


def require_sandbox() -> None:
    """Raise InvalidInputError where programs cannot be confined."""
    try:
        with Sandbox("", seconds=TEST_SECONDS) as sandbox:
            sandbox.run("", seconds=TEST_SECONDS)
    except SandboxError as error:
        raise InvalidInputError(f"reward.type code is not possible here: {error}") from error


def tests_fault(tests: TestCases) -> str | None:
    """What is wrong with the test cases themselves."""
    if not tests.inputs:
        return "has no test cases"
    if len(tests.inputs) != len(tests.outputs):
        return f"has {len(tests.inputs)} inputs but {len(tests.outputs)} outputs"
    if tests.function is None:
        return None
    for number, (given, expected) in enumerate(zip(tests.inputs, tests.outputs, strict=True), 1):
        arguments = [line for line in given.split("\n") if line.strip()]
        for line in [*arguments, expected]:
            if not _is_json(line):
                return (
                    f"has test {number} of function {tests.function!r} with {line[:80]!r}: must be "
                    "JSON, one argument per line and one result"
                )
    return None


def same_output(expected: str, actual: str) -> bool:
    """Equal but for white space at the ends of lines; decimals may differ by rounding."""
    if expected.strip() == actual.strip():
        return True
    expected_lines, actual_lines = expected.strip().split("\n"), actual.strip().split("\n")
    return len(expected_lines) == len(actual_lines) and all(
        _same_line(*pair) for pair in zip(expected_lines, actual_lines, strict=True)
    )


def same_result(expected: str, actual: str) -> bool:
    """Equal JSON values; decimals may differ by rounding."""
    try:
        return _same_value(json.loads(expected), json.loads(actual))
    except (ValueError, OverflowError, RecursionError):
        return False


def _same_line(expected: str, actual: str) -> bool:
    pairs = expected.split(), actual.split()
    return len(pairs[0]) == len(pairs[1]) and all(
        _same_token(*pair) for pair in zip(*pairs, strict=True)
    )


def _same_token(expected: str, actual: str) -> bool:
    if expected == actual:
        return True
    if _INTEGER.fullmatch(expected) and _INTEGER.fullmatch(actual):
        return False  # `007` is not 7, and large integers must not be equal by tolerance
    try:
        return _close(float(expected), float(actual))
    except ValueError:
        return False


def _same_value(expected: Any, actual: Any) -> bool:
    match expected, actual:
        case list(), list():
            return len(expected) == len(actual) and all(
                _same_value(*pair) for pair in zip(expected, actual, strict=True)
            )
        case dict(), dict():
            return expected.keys() == actual.keys() and all(
                _same_value(value, actual[key]) for key, value in expected.items()
            )
        case (float(), int() | float()) | (int(), float()):
            return _close(expected, actual)
    return bool(expected == actual)


def _close(expected: float, actual: float) -> bool:
    finite = math.isfinite(expected) and math.isfinite(actual)
    return finite and math.isclose(expected, actual, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
