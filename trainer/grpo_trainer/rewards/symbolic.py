"""Equality of mathematical expressions, by Math-Verify.

Its own time limits are alarm signals, which fail silently off the main thread. They are off here:
the caller runs this in a process that it can kill. It is imported on first use, as only workers
need it and it takes a second.
"""

import re
from functools import lru_cache
from typing import Any

# The grammar adds or multiplies numerals that stand side by side: `{1}{2}` is 3, `1 000` is 0.
_SIDE_BY_SIDE = re.compile(
    r"""(?<![_^]) \d (?: \s | \\[,;:!\ ] | ~ )+ \{* \d    # 1 2, but not \int_0^1 2
      | (?<![_^c}\]]) \d \{ \s* \d                      # 1{2}, but not \frac1{2} or \log_2{8}
      | (?<![A-Za-z}\]_^]) \{\d+\} \s* \{* \d           # {1}{2}, but not \frac{1}{2}
    """,
    re.VERBOSE,
)

_UPRIGHT_LETTER = re.compile(r"\\math(?:rm|bf|it|sf)\s*\{([A-Za-z])\}")  # unknown to the grammar


def warm_up() -> None:
    """Import and build the grammar's tables now rather than on a completion's time."""
    assert equal(r"\frac{x}{2}", "0.5x")


@lru_cache(maxsize=8192)
def expression(text: str) -> Any | None:
    """The sympy object that LaTeX `text` denotes, None where it denotes none."""
    if _SIDE_BY_SIDE.search(text):
        return None
    from math_verify import LatexExtractionConfig, parse

    # Only the box as a whole is read: looser extractions take a part of an answer for all of it.
    box = LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)
    text = _UPRIGHT_LETTER.sub(r" \1", text)
    parsed = parse(rf"\boxed{{{text}}}", [box], fallback_mode="no_fallback", parsing_timeout=None)
    return parsed[0] if parsed else None


def equal(gold: str, answer: str) -> bool:
    """Whether both denote the same. Not symmetric: `x = 5` is right for 5, its last side counts."""
    from math_verify import verify

    reference, candidate = expression(gold), expression(answer)
    if reference is None or candidate is None:
        return False
    return bool(verify(reference, candidate, timeout_seconds=None))
