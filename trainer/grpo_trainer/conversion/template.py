"""Texts with columns: `{question}`, `Context: {context}\\n\\n{meta.question}`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

from ..errors import InvalidInputError
from ..row_faults import InvalidValueError, shown


@dataclass(frozen=True, slots=True)
class Template:
    """Texts and columns in turn."""

    source: str
    parts: tuple[tuple[str, str | None], ...]
    """A text, and the column behind it, None at the end."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column for _, column in self.parts if column is not None)

    @property
    def name(self) -> str:
        """The column that it is, or the template."""
        return self.columns[0] if self.is_column else self.source

    @property
    def is_column(self) -> bool:
        return len(self.columns) == 1 and [text for text, _ in self.parts] == [""]

    def fill(self, row: Mapping[str, Any]) -> Any:
        """The text; the value itself where the template is one column.

        Raises InvalidValueError for a column that is empty, or that is no text beside others.
        """
        if self.is_column:
            return column_of(row, self.columns[0])
        return "".join(
            text + ("" if column is None else _as_text(column, column_of(row, column)))
            for text, column in self.parts
        )


def parse_template(option: str, text: str, names: Sequence[str]) -> Template:
    """A template whose columns a table has. Raises InvalidInputError."""
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise InvalidInputError(
            f"{option}: Invalid value: {text!r}: {error}; a brace of the text is written twice"
        ) from error
    parts = []
    for literal, column, layout, conversion in parsed:
        if layout or conversion or column == "":
            raise InvalidInputError(f"{option}: Invalid value: {text!r}: must be {{COLUMN}}")
        if column is not None and column.split(".")[0] not in names and column not in names:
            raise InvalidInputError(
                f"{option}: Invalid value: {text!r}: no column {column!r}; the table has "
                f"{', '.join(names)}"
            )
        parts.append((literal.replace("\\n", "\n"), column))
    if not any(column for _, column in parts):
        raise InvalidInputError(
            f"{option}: Invalid value: {text!r}: must contain a column, such as {{{names[0]}}}"
        )
    return Template(text, tuple(parts))


def column_of(row: Mapping[str, Any], name: str) -> Any:
    """A value by the name of its column, or by a path into an object: `meta.answer`.

    Raises InvalidValueError where there is none.
    """
    if name in row:
        value = row[name]
    else:
        value = row
        for key in name.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
    if value is None or (isinstance(value, str) and not value.strip()):
        raise InvalidValueError(shown(value), "must not be empty")
    return value


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise InvalidValueError(shown(value), f"must be a text, to stand in a template as {{{name}}}")
