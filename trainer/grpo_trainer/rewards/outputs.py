"""Comparison of what a program prints or returns with what a test expects."""

import json
import math
import re
from typing import Any

_RELATIVE, _ABSOLUTE = 1e-5, 1e-8
_INTEGER = re.compile(r"[+-]?\d+")


def same_output(expected: str, actual: str) -> bool:
    """Equal except for white space at the ends of lines; decimals may differ by rounding."""
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


def is_json(text: str) -> bool:
    """Whether the text is a JSON value."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


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
    if not (math.isfinite(expected) and math.isfinite(actual)):
        return False
    # An absolute limit for all would make every tiny number equal to every other.
    absolute = _ABSOLUTE if 0 in (expected, actual) else 0.0
    return math.isclose(expected, actual, rel_tol=_RELATIVE, abs_tol=absolute)
