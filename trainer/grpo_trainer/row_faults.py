"""Faults of a data set's rows, grouped and worded for the user."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .errors import InvalidDataError

MAX_LISTED = 20
_MAX_ALIKE = 3
"""Faults of one kind that are listed one by one; more become a single line."""

_POSITION = re.compile(r" (?:line|row) \d+$")


@dataclass(frozen=True, slots=True)
class RowFault:
    """One fault: where it is, and what the value must be."""

    source: str
    """`file.jsonl line 3`, or the file alone."""
    requirement: str
    """`must be ...`, or what is missing."""
    value: str | None = None
    """The value as shown to the user; None where a value is missing."""
    column: str | None = None

    def __str__(self) -> str:
        where = self.source if self.column is None else f"{self.source}, column {self.column!r}"
        return f"{where}: {self._text()}"

    def _text(self) -> str:
        if self.value is None:
            return f"Required value: {self.requirement}"
        return f"Invalid value: {self.value}: {self.requirement}"


class InvalidValueError(ValueError):
    """A value that its column cannot hold: the value as shown, and the requirement."""

    def __init__(self, value: str, requirement: str) -> None:
        self.value, self.requirement = value, requirement
        super().__init__(f"Invalid value: {value}: {requirement}")


def refuse(faults: Iterable[RowFault]) -> InvalidDataError:
    """The error to raise: faults of one kind together, at most `MAX_LISTED` lines in all."""
    groups: dict[tuple[str, str | None, bool, str], list[RowFault]] = {}
    for fault in faults:
        kind = (_file(fault), fault.column, fault.value is None, fault.requirement)
        groups.setdefault(kind, []).append(fault)
    lines: list[str] = []
    for alike in groups.values():
        lines += map(str, alike) if len(alike) <= _MAX_ALIKE else [_together(alike)]
    more = len(lines) - MAX_LISTED
    return InvalidDataError(
        [*lines[:MAX_LISTED], *([f"and {more} more faults"] if more > 0 else [])]
    )


def shown(value: Any, width: int = 60) -> str:
    """A value as JSON, in ASCII and shortened, so that any message can be printed and logged."""
    text = json.dumps(value, default=str)
    return text if len(text) <= width else f"{text[:width]}..."


def _together(alike: list[RowFault]) -> str:
    first = alike[0]
    column = "" if first.column is None else f", column {first.column!r}"
    position = first.source.removeprefix(_file(first)).strip()
    return f"{_file(first)}: {len(alike):,} rows{column}: {first._text()}; first: {position}"


def _file(fault: RowFault) -> str:
    return _POSITION.sub("", fault.source)
