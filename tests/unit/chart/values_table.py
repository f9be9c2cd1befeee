"""The values of the chart as a table: path, default, and the comment above the key."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

_KEY = re.compile(r"^( *)([A-Za-z]+):")


@dataclass(frozen=True)
class Value:
    """A value that has a comment, or a leaf that has none."""

    path: str
    default: Any
    comment: str


def values(text: str) -> Iterator[Value]:
    """The values of a values.yaml. What is below one with a comment belongs to it."""
    comments = _comments(text)

    def walk(found: Any, path: tuple[str, ...]) -> Iterator[Value]:
        comment = comments.get(path, "")
        if comment or not isinstance(found, dict) or not found:
            yield Value(".".join(path), found, comment)
            return
        for key, below in found.items():
            yield from walk(below, (*path, key))

    yield from walk(yaml.safe_load(text), ())


def table(text: str) -> str:
    """The table in Markdown."""
    rows = [f"| `{v.path}` | `{json.dumps(v.default)}` | {v.comment} |\n" for v in values(text)]
    return "| value | default | |\n|---|---|---|\n" + "".join(rows)


def _comments(text: str) -> dict[tuple[str, ...], str]:
    """The comment above each key, by the key's path."""
    found: dict[tuple[str, ...], str] = {}
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        key = _KEY.match(line)
        if line.lstrip().startswith("#"):
            comment.append(line.strip("# "))
            continue
        if key:
            indent = len(key[1])
            path = [(depth, name) for depth, name in path if depth < indent] + [(indent, key[2])]
            if comment:
                found[tuple(name for _, name in path)] = " ".join(comment)
        comment = []
    return found
