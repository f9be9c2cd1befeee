"""Equality of mathematical expressions, by Math-Verify.

Its own time limits are alarm signals, which fail silently off the main thread. They are disabled
here: the caller runs this in a process that it can kill. It is imported on first use: only workers
need it, and the import takes a second.
"""

import math
import re
import sys
from functools import lru_cache
from typing import Any

# The grammar adds or multiplies numerals that stand side by side: `{1}{2}` is 3, `1 000` is 0.
_SIDE_BY_SIDE = re.compile(
    r"""(?<![_^]) \d (?: \s | \\[,;:!\ ()] | [~$] )+ \{* \d   # 1 2, but not \int_0^1 2
      | \d \s* (?: \\[lvd]?dots | \.\.\. ) \s* \d       # 1 \ldots 2
      | (?<![_^c}\]]) \d \{ \s* \d                      # 1{2}, but not \frac1{2} or \log_2{8}
      | (?<![A-Za-z}\]_^]) \{\d+\} \s* \{* \d           # {1}{2}, but not \frac{1}{2}
      | \d \s{2,} \\[dtc]?frac \s* \{? \d               # 1 \quad \frac{1}{2}, a wide space
    """,
    re.VERBOSE,
)

_EXPONENT = re.compile(r"(?<![A-Za-z\d.])(\d+(?:\.\d*)?)[eE]([+-]?\d{1,3})(?![\d.])")
_DIGITS = 6
_PRECISION = 30
_RELATIVE, _ABSOLUTE = 5e-6, 1e-6
_SET_BUILDER = re.compile(
    r"\\\{\s*([a-z])\s*(?:\\in\s*\\mathbb\s*\{?R\}?\s*)?(?:\\mid|\\vert|[:|])(.*\b\1\b.*)\\\}"
)
_UPRIGHT_LETTER = re.compile(r"\\math(?:rm|bf|it|sf)\s*\{([A-Za-z])\}")  # unknown to the grammar


def warm_up() -> None:
    """Import and build the grammar's tables now, not within the deadline of a completion."""
    assert equal(r"\frac{x}{2}", "0.5x")


@lru_cache(maxsize=8192)
def expression(text: str) -> Any | None:
    """The sympy object that LaTeX `text` denotes, None where it denotes none."""
    if _SIDE_BY_SIDE.search(text):
        return None
    if builder := _SET_BUILDER.fullmatch(text.replace(r"\left", "").replace(r"\right", "").strip()):
        text = builder[2]
    from math_verify import LatexExtractionConfig, parse

    # Only the box as a whole is read: looser extractions take a part of an answer for all of it.
    box = LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)
    text = _EXPONENT.sub(r"(\1 \\times 10^{\2})", _UPRIGHT_LETTER.sub(r" \1", text))
    parsed = parse(rf"\boxed{{{text}}}", [box], fallback_mode="no_fallback", parsing_timeout=None)
    return parsed[0] if parsed else None


def equal(reference: str, answer: str) -> bool:
    """Whether both denote the same value, set or relation.

    Not symmetric: `x = 5` is right for 5, since its last side counts. An inequality in one
    variable equals the interval of its solutions, whichever of the two is the reference.
    """
    from math_verify import verify

    expected, actual = expression(reference), expression(answer)
    if expected is None or actual is None:
        return False
    expected, actual = _comparable(expected, actual)
    if (numbers := _numbers_equal(expected, actual)) is not None:
        return numbers
    digits = max(map(_decimals, (expected, actual)))
    return bool(
        verify(
            expected,
            actual,
            float_rounding=digits,
            numeric_precision=_PRECISION,
            timeout_seconds=None,
        )
    )


def _comparable(expected: Any, actual: Any) -> tuple[Any, Any]:
    """Both as sets if one of them is a set and the other a relation."""
    from sympy import Set

    sets = [isinstance(v, Set) and not _is_relations(v) for v in (expected, actual)]
    return (_as_set(expected), _as_set(actual)) if any(sets) else (expected, actual)


def _as_set(value: Any) -> Any:
    """The solutions of inequalities, the set of `x in S`; anything else unchanged."""
    from sympy import And, Eq, Or, S, Set
    from sympy.core.relational import Relational

    if isinstance(value, Eq) and isinstance(value.rhs, Set):
        return value.rhs
    inequality = isinstance(value, And | Relational)
    if isinstance(value, Eq) or len(value.free_symbols) != 1:
        return value
    if _is_relations(value):
        # Listed inequalities without a common solution are alternatives.
        both = And(*value.args).as_set()
        return Or(*value.args).as_set() if both is S.EmptySet else both
    return value.as_set() if inequality else value


def _is_relations(value: Any) -> bool:
    """Whether it is `x < 2 or x > 3`, which the grammar reads as a set of two relations."""
    from sympy import FiniteSet
    from sympy.core.relational import Relational

    return isinstance(value, FiniteSet) and all(isinstance(a, Relational) for a in value.args)


def _decimals(value: Any) -> int:
    """Decimal places that leave six significant digits of the smallest number in the value."""
    from sympy import preorder_traversal

    numbers = [abs(n) for part in preorder_traversal(value) if (n := _real(part))]
    smallest = min(numbers, default=1.0)
    return max(_DIGITS, _DIGITS - 1 - math.floor(math.log10(smallest)))


def _numbers_equal(expected: Any, actual: Any) -> bool | None:
    """Whether two numbers are equal but for rounding; None if either is not a number.

    Math-Verify's limit is absolute, so that all tiny numbers are equal to it.
    """
    first, second = _real(expected), _real(actual)
    if first is None or second is None:
        return None
    from sympy import Float

    limit = min(_ABSOLUTE, _RELATIVE * abs(first)) if first else sys.float_info.min
    close = abs(first - second) <= limit
    return close if expected.has(Float) or actual.has(Float) or not close else None


def _real(value: Any) -> float | None:
    """The value of a real number, None for anything else and beyond the range of floats."""
    if not getattr(value, "is_real", False) or getattr(value, "free_symbols", True):
        return None
    number = float(value.evalf(_PRECISION))
    return number if math.isfinite(number) else None
