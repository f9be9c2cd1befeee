"""The pages of the documentation, and what stands between their fences."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: Path
    number: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}-{self.number}"


def blocks(*languages: str) -> Iterator[Block]:
    """The fenced blocks of all pages in these languages; "" is one without."""
    for page in PAGES:
        for number, (language, text) in enumerate(_FENCED.findall(page.read_text()), 1):
            if language in languages:
                yield Block(page, number, language, text)


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCED.sub("", page.read_text())
