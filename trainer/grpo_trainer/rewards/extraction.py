"""What a completion marks as its answer."""

import re
from dataclasses import dataclass

_BRACES = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Extraction:
    """The answer that a completion marks, and whether it has the required form."""

    answer: str | None
    """None where nothing, or only white space, is marked."""
    well_formed: bool


def boxes(text: str) -> tuple[str, ...]:
    r"""Contents of the outermost balanced `\boxed{...}`, in order; escaped braces do not count.

    A box without its closing brace is none, and does not hide a closed one inside it.
    """
    open_braces: list[int | None] = []  # where a box's content starts, None for a plain brace
    closed: list[tuple[int, int]] = []
    for match in _BRACES.finditer(text):
        token = match.group()
        if token.startswith(r"\boxed"):
            open_braces.append(match.end())
        elif token == "{":
            open_braces.append(None)
        elif token == "}" and open_braces and (start := open_braces.pop()) is not None:
            while closed and closed[-1][0] > start:  # nested in this one
                closed.pop()
            closed.append((start, match.start()))
    return tuple(text[start:end] for start, end in closed)
