"""Nested settings by their dotted path."""

from collections.abc import Iterator, Mapping
from typing import Any


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested mappings by their path below `path`; also lists and empty mappings."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{path}.{key}" if path else key)
    else:
        yield path, value
