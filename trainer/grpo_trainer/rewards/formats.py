"""Where a completion marks its answer: think/answer tags, the last box, the last Python block."""

import re
from dataclasses import dataclass

_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_BRACES = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
_PYTHON_BLOCK = re.compile(
    r"^[ \t]*```(?:python3?|py)[ \t]*\r?\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE | re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a completion marks as its answer."""

    answer: str | None
    """None where nothing, or only white space, is marked."""
    well_formed: bool
    """Whether the completion has the asked-for form."""


def think_answer(text: str) -> Extraction:
    """The last `<answer>...</answer>`.

    Well-formed: each of the four tags exactly once, in order, and nothing but white space behind.
    """
    positions = [text.find(tag) for tag in _TAGS]
    well_formed = (
        all(text.count(tag) == 1 for tag in _TAGS)
        and positions == sorted(positions)
        and text.rstrip().endswith(_TAGS[-1])
    )
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    marked = text[start + len("<answer>") : end].strip() if start >= 0 else ""
    return Extraction(marked or None, well_formed)


def boxes(text: str) -> tuple[str, ...]:
    r"""Contents of the outermost balanced `\boxed{...}`, in order; escaped braces do not count.

    A box that is never closed is none, and does not hide a closed one inside it.
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


def boxed_answer(text: str) -> Extraction:
    r"""The last balanced `\boxed{...}`; well-formed when it holds something."""
    found = boxes(text)
    marked = found[-1].strip() if found else ""
    return Extraction(marked or None, bool(marked))


def python_block(text: str) -> Extraction:
    """The last closed block fenced as Python; well-formed when it holds something."""
    found = _PYTHON_BLOCK.findall(text)
    program = found[-1] if found and found[-1].strip() else None
    return Extraction(program, program is not None)
