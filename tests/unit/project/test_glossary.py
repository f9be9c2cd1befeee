"""The glossary's words to replace occur nowhere in the repository.

`python tests/unit/project/test_glossary.py` counts them by directory.
"""

import collections
import functools
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GLOSSARY = ROOT / "docs" / "development" / "glossary.md"
TEXT = {".py", ".md", ".yaml", ".yml", ".tpl", ".txt", ".toml", ".json", ".go", ".sh"}
NAMES = {"Makefile", "Dockerfile.operator", "Dockerfile.trainer"}


@dataclass(frozen=True)
class Found:
    file: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text.strip()}"


def phrases() -> list[str]:
    """The first column of the glossary's last table; one row may hold several, by commas."""
    rows = re.findall(r"^\| (.+?) \|", GLOSSARY.read_text().rpartition("\n## ")[2], re.MULTILINE)
    return [phrase.strip() for row in rows[1:] for phrase in row.split(",")]


@functools.cache
def texts() -> dict[Path, str]:
    """The repository's own text files."""
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    return {
        file: (ROOT / file).read_text()
        for file in map(Path, listed)
        if (file.suffix in TEXT or file.name in NAMES) and ROOT / file != GLOSSARY
        if (ROOT / file).is_file()
    }


def occurrences(phrase: str) -> Iterator[Found]:
    """Where a phrase occurs as whole words, parts of identifiers included, also across lines."""
    words = r"[\s#_]+".join(map(re.escape, phrase.split()))
    pattern = re.compile(rf"(?<![A-Za-z]){words}(?![A-Za-z])", re.IGNORECASE)
    for file, text in texts().items():
        for match in pattern.finditer(text):
            number = text.count("\n", 0, match.start()) + 1
            yield Found(file, number, text.splitlines()[number - 1])


@pytest.mark.parametrize("phrase", phrases())
def test_a_word_to_replace_is_replaced(phrase):
    found = list(map(str, occurrences(phrase)))
    assert found == [], f"the glossary has another word for {phrase!r}"


def test_the_glossary_lists_words_to_replace():
    assert len(phrases()) > 10


if __name__ == "__main__":
    for phrase in phrases():
        count = collections.Counter("/".join(f.file.parts[:3][:-1]) for f in occurrences(phrase))
        print(f"{count.total():5} {phrase}", dict(count.most_common()))
