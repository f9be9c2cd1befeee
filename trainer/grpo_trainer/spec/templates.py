"""Texts with `{name}` places, which rows and completions fill, and patterns that read texts."""

import re
from collections.abc import Mapping
from string import Formatter
from typing import Annotated, Any

from pydantic import AfterValidator, StringConstraints
from pydantic_core import PydanticCustomError

MAX_TEMPLATE_LENGTH = 32768


def places(text: str) -> frozenset[str]:
    """The names of a template; raises ValueError if it is none.

    A place is a name in braces. Attributes, indices, conversions and formats are refused: they
    would reach into objects.
    """
    names = set()
    try:
        for _, name, form, conversion in Formatter().parse(text):
            if name is None:
                continue
            if not name.isidentifier() or form or conversion:
                raise ValueError(f"{{{name}}} is not a name")
            names.add(name)
    except ValueError as error:
        raise ValueError(f"{error}; write {{{{ and }}}} for braces") from None
    return frozenset(names)


def fill(text: str, values: Mapping[str, Any]) -> str:
    """The template with its places filled; raises KeyError for a name without a value."""
    return text.format_map({name: str(values[name]) for name in places(text)})


def _valid(text: str) -> str:
    try:
        places(text)
    except ValueError as error:
        reason = {"e": str(error)}
        raise PydanticCustomError("template", "must be a template: {e}", reason) from None
    return text


Template = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_TEMPLATE_LENGTH),
    AfterValidator(_valid),
]


def last_match(pattern: str, text: str) -> str | None:
    """The group of the last match, or all of it without a group; None where nothing matches."""
    found = None
    for match in re.finditer(pattern, text):
        found = match
    return None if found is None else found.group(found.re.groups)


def _pattern(text: str) -> str:
    try:
        groups = re.compile(text).groups
    except re.error as error:
        raise PydanticCustomError(
            "pattern", "must be a regular expression: {e}", {"e": str(error)}
        ) from None
    if groups > 1:
        raise PydanticCustomError("pattern", "must have at most one group")
    return text


Pattern = Annotated[str, StringConstraints(min_length=1, max_length=4096), AfterValidator(_pattern)]
