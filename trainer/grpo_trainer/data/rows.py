"""The rules of a row: its messages, and the answer or the test cases that its reward needs."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

from ..messages import Message, Row, TestCases
from ..spec.training import DatasetSpec, RewardType
from .faults import Fault, UnfitError, shown
from .files import Record, parse_json

T = TypeVar("T")

ROLES = ("system", "user", "assistant", "tool")
_TESTS = (
    '{"inputs": [texts], "outputs": [texts], "fn_name": optional}, as an object or its JSON text'
)


def parse_row(record: Record, columns: DatasetSpec, reward: RewardType) -> Row | tuple[Fault, ...]:
    """The row, or all of its faults."""
    faults: list[Fault] = []

    def required(column: str, parse: Callable[[Any], T]) -> T | None:
        if column not in record.columns:
            found = f"no such column; the row has {shown(list(record.columns), width=300)}"
            faults.append(
                Fault(record.source, found, "this column, or its name in spec.dataset", column)
            )
            return None
        try:
            return parse(record.columns[column])
        except UnfitError as unfit:
            faults.append(Fault(record.source, unfit.found, unfit.legal, column))
            return None

    def optional(column: str, parse: Callable[[Any], T]) -> T | None:
        try:
            return parse(record.columns.get(column))
        except UnfitError:  # a custom reward reads the row itself and may keep what it likes there
            return None

    custom = reward is RewardType.CUSTOM
    messages = required(columns.prompt_column, parse_messages)
    answer, tests = None, None
    if custom:
        answer = optional(columns.answer_column, parse_answer)
        tests = optional(columns.tests_column, parse_tests)
    elif reward is RewardType.CODE:
        tests = required(columns.tests_column, parse_tests)
    else:
        answer = required(columns.answer_column, parse_answer)
    if messages is None or faults:
        return tuple(faults)
    return Row(record.source, messages, answer, tests, record.columns if custom else {})


def parse_messages(value: Any) -> tuple[Message, ...]:
    """A question as text, one message, or a conversation that waits for a completion."""
    if isinstance(value, str):
        value = {"role": "user", "content": value}
    turns = [value] if isinstance(value, dict) else value
    if not isinstance(turns, list) or not turns:
        legal = "a question as text, {role, content}, or a non-empty list of {role, content}"
        raise UnfitError(shown(value), legal)
    messages = tuple(_parse_message(turn) for turn in turns)
    if not any(message.role == "user" for message in messages):
        raise UnfitError("no user message", "at least one message with role user")
    if messages[-1].role == "assistant":
        raise UnfitError(
            "a last message with role assistant", "a last message that asks for a completion"
        )
    return messages


def _parse_message(turn: Any) -> Message:
    if not isinstance(turn, dict) or not {"role", "content"} <= turn.keys():
        raise UnfitError(f"message {shown(turn)}", "{role, content}")
    role, content = turn["role"], turn["content"]
    if role not in ROLES:
        raise UnfitError(f"role {shown(role)}", f"role {', '.join(ROLES)}")
    if not isinstance(content, str) or not content.strip():
        raise UnfitError(f"content {shown(content)}", "content that is a non-empty text")
    return Message(role, content)


def parse_answer(value: Any) -> str:
    """A text as it is; a number as its decimal digits, without an exponent."""
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        number = Decimal(str(value))
        if number.is_finite():
            return f"{number:f}"
    raise UnfitError(shown(value), "a non-empty text or a finite number")


def parse_tests(value: Any) -> TestCases:
    """Test cases as an object, or as its JSON text."""
    cases = parse_json(value) if isinstance(value, str) else value
    if not isinstance(cases, dict):
        raise UnfitError(shown(cases), _TESTS)
    inputs, outputs = _texts(cases, "inputs"), _texts(cases, "outputs")
    if not inputs or len(inputs) != len(outputs):
        found = f"{len(inputs)} inputs and {len(outputs)} outputs"
        raise UnfitError(found, "as many outputs as inputs, and at least one")
    function = cases.get("fn_name")
    if function is not None and not (isinstance(function, str) and function.isidentifier()):
        raise UnfitError(f"fn_name {shown(function)}", "the name of a Python function, or none")
    return TestCases(inputs, outputs, function)


def _texts(cases: dict[str, Any], key: str) -> tuple[str, ...]:
    texts = cases.get(key)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UnfitError(f"{key} {shown(texts)}", f"{key} that is a list of texts")
    return tuple(texts)
