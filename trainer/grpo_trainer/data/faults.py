"""What can be wrong with a row, and how it is told."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidDataError

MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: where it stands, what was found there, and what would be legal."""

    source: str
    """`file.jsonl line 3`, or the file alone."""
    found: str
    legal: str
    column: str | None = None

    def __str__(self) -> str:
        where = self.source if self.column is None else f"{self.source}, column {self.column!r}"
        return f"{where}: found {self.found}; legal: {self.legal}"


class UnfitError(ValueError):
    """A value is unfit for its column; carries what was found and what would be legal."""

    def __init__(self, found: str, legal: str) -> None:
        self.found, self.legal = found, legal
        super().__init__(f"found {found}; legal: {legal}")


def refuse(faults: Iterable[Fault]) -> InvalidDataError:
    """The error to raise: the first faults in full, the rest as a number."""
    lines = [str(fault) for fault in faults]
    more = len(lines) - MAX_LISTED
    return InvalidDataError(
        [*lines[:MAX_LISTED], *([f"and {more} more faults"] if more > 0 else [])]
    )


def shown(value: Any, width: int = 60) -> str:
    """A value as JSON, in ASCII and shortened, so that any message can be printed and logged."""
    text = json.dumps(value, default=str)
    return text if len(text) <= width else f"{text[:width]}..."
