"""The rules of a row: its messages, and the columns that its reward needs."""

import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

from ..messages import Message, Row, TestCases
from ..rewards import Column, RowNeeds
from ..row_faults import InvalidValueError, RowFault, shown
from ..spec.templates import fill, last_match, places
from ..spec.training import DatasetSpec
from .files import Record, parse_json

T = TypeVar("T")

ROLES = ("system", "user", "assistant", "tool")
_TESTS = (
    'must be {"inputs": [texts], "outputs": [texts], "fn_name": optional}, as an object or its '
    "JSON text"
)
_PLAIN_KEYS = ("role", "content")
_LIKE_MESSAGES = re.compile(r"""\s*\[?\s*\{\s*["'](?:role|content|from|value)["']\s*:""")
_MESSAGES = "must be a question as text, {role, content}, or a non-empty list of {role, content}"


def parse_row(record: Record, columns: DatasetSpec, needs: RowNeeds) -> Row | tuple[RowFault, ...]:
    """The row, or all of its faults."""
    faults: list[RowFault] = []

    def required(column: str, parse: Callable[[Any], T]) -> T | None:
        if column not in record.columns:
            found = shown(list(record.columns), width=300)
            needed = f"this column, or its name in spec.dataset; the row has {found}"
            faults.append(RowFault(record.source, needed, column=column))
            return None
        try:
            return parse(record.columns[column])
        except InvalidValueError as error:
            faults.append(RowFault(record.source, error.requirement, error.value, column))
            return None

    def optional(column: str, parse: Callable[[Any], T]) -> T | None:
        try:
            return parse(record.columns.get(column))
        except InvalidValueError:  # a reward that reads the row itself accepts any value
            return None

    def read(kind: Column, column: str, parse: Callable[[Any], T]) -> T | None:
        if kind in needs.columns:
            return required(column, parse)
        return optional(column, parse) if needs.reads_row else None

    def from_template(template: str) -> tuple[Message, ...] | None:
        """One message of the user; None where a column is missing or empty."""
        texts = {name: required(name, parse_answer) for name in sorted(places(template))}
        if any(text is None for text in texts.values()):
            return None
        return (Message("user", fill(template, texts)),)

    messages: tuple[Message, ...] | None
    if columns.prompt_template is not None:
        messages = from_template(columns.prompt_template)
    elif needs.messages:
        messages = required(columns.prompt_column, parse_messages)
    else:
        messages = optional(columns.prompt_column, parse_messages) or ()
    answer = read(
        Column.ANSWER, columns.answer_column, partial(parse_answer, pattern=columns.answer_pattern)
    )
    tests = read(Column.TESTS, columns.tests_column, parse_tests)
    if messages is None or faults:
        return tuple(faults)
    return Row(record.source, messages, answer, tests, record.columns if needs.reads_row else {})


def parse_messages(value: Any) -> tuple[Message, ...]:
    """A question as text, one message, or a conversation that does not end with the assistant.

    Messages may be given as their JSON text.
    """
    if isinstance(value, str):
        value = _parse_text(value)
    turns = [value] if isinstance(value, dict) else value
    if not isinstance(turns, list) or not turns:
        raise InvalidValueError(shown(value), _MESSAGES)
    messages = tuple(_parse_message(turn) for turn in turns)
    if not any(message.role == "user" for message in messages):
        raise InvalidValueError(shown(value), "must have at least one message with role user")
    if messages[-1].role == "assistant":
        raise InvalidValueError(shown(value), "must not end with a message of role assistant")
    return messages


def _parse_text(text: str) -> Any:
    """Messages in JSON, else the text as a question."""
    if not _LIKE_MESSAGES.match(text):
        return {"role": "user", "content": text}
    try:
        return parse_json(text)
    except InvalidValueError as error:
        raise InvalidValueError(error.value, f"messages as text {error.requirement}") from None


def _parse_message(turn: Any) -> Message:
    if not isinstance(turn, dict) or not {"role", "content"} <= turn.keys():
        raise InvalidValueError(f"message {shown(turn)}", "must be {role, content}")
    role, content = turn["role"], turn["content"]
    if role not in ROLES:
        raise InvalidValueError(f"role {shown(role)}", f"must be one of {', '.join(ROLES)}")
    extra = {key: _without_nulls(v) for key, v in turn.items() if v and key not in _PLAIN_KEYS}
    if not content and role == "assistant" and "tool_calls" in extra:
        content = ""  # nothing but calls
    elif not isinstance(content, str) or not content.strip():
        raise InvalidValueError(f"content {shown(content)}", "must be a non-empty text")
    return Message(role, content, extra)


def _without_nulls(value: Any) -> Any:
    """The value without null keys: parquet gives every key of any row to all of them."""
    if isinstance(value, dict):
        return {key: _without_nulls(v) for key, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value


def parse_answer(value: Any, pattern: str | None = None) -> str:
    """A text as it is, or what the pattern finds in it; a number as its decimal digits, without an
    exponent."""
    if isinstance(value, str) and value.strip():
        found = value if pattern is None else last_match(pattern, value)
        if found is None or not found.strip():
            raise InvalidValueError(shown(value), f"must match {pattern!r}")
        return found
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        number = Decimal(str(value))
        if number.is_finite():
            return f"{number:f}"
    raise InvalidValueError(shown(value), "must be a non-empty text or a finite number")


def parse_tests(value: Any) -> TestCases:
    """Test cases as an object, or as its JSON text."""
    cases = parse_json(value) if isinstance(value, str) else value
    if not isinstance(cases, dict):
        raise InvalidValueError(shown(cases), _TESTS)
    inputs, outputs = _texts(cases, "inputs"), _texts(cases, "outputs")
    if not inputs or len(inputs) != len(outputs):
        found = f"{len(inputs)} inputs and {len(outputs)} outputs"
        raise InvalidValueError(found, "must be as many outputs as inputs, and at least one")
    function = cases.get("fn_name")
    if function is not None and not (isinstance(function, str) and function.isidentifier()):
        raise InvalidValueError(
            f"fn_name {shown(function)}", "must be the name of a Python function, or absent"
        )
    return TestCases(inputs, outputs, function)


def _texts(cases: dict[str, Any], key: str) -> tuple[str, ...]:
    texts = cases.get(key)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InvalidValueError(f"{key} {shown(texts)}", "must be a list of texts")
    return tuple(texts)
