"""Rows of a data set from rows of a table: the prompt, the reference answer, the rest."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..data.files import Record
from ..data.rows import parse_row
from ..errors import InvalidInputError
from ..messages import Row
from ..rewards import Column, RowNeeds, reward_class
from ..rewards.boxed import boxed_answer
from ..rewards.mathematics import MathReward
from ..rewards.references import reference_faults
from ..row_faults import InvalidValueError, RowFault, refuse, shown
from ..spec.reward import RewardSpec, RewardType
from ..spec.training import DatasetSpec
from .read import Columns
from .template import Template, parse_template

PROMPTS = ("messages", "prompt", "question", "problem", "instruction", "query", "input")
ANSWERS = ("gt_answer", "answer", "final_answer", "solution", "target", "label", "output")
"""Columns to look for, the most specific first."""
HASHES = "####"
_COLUMNS = DatasetSpec()


class AnswerForm(StrEnum):
    """Where the reference answer is in its column."""

    WHOLE = "whole"
    HASHES = HASHES
    """Behind the last `####`, as in GSM8K."""
    BOXED = "boxed"
    r"""In the last `\boxed{...}`, as in MATH."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a table becomes a data set."""

    prompt: Template
    answer: Template | None
    form: AnswerForm
    keep: tuple[str, ...]
    """Columns that are copied."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows as read, with the names of all columns."""

    records: Sequence[Record]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for r in self.records for name in r.columns))

    def layout(
        self,
        reward: RewardType,
        prompt: str | None = None,
        answer: str | None = None,
        form: AnswerForm | None = None,
        keep: Sequence[str] = (),
    ) -> Layout:
        """The layout that options describe; what they leave out follows from the columns.

        Raises InvalidInputError for options that do not fit the table, and for a table in which
        no column is called as prompts or answers usually are.
        """
        names, needs = self.names, reward_class(reward)
        if unknown := [name for name in keep if name not in names]:
            raise InvalidInputError(
                f"--keep: Invalid value: {unknown[0]!r}: must be one of {', '.join(names)}"
            )
        given = parse_template("--prompt", prompt or _guess("--prompt", PROMPTS, names), names)
        found = None
        if Column.ANSWER in needs.columns or answer is not None:
            rest = [name for name in names if name not in given.columns]
            found = parse_template("--answer", answer or _guess("--answer", ANSWERS, rest), names)
        kept = [name for name in names if name not in given.columns] if needs.reads_row else keep
        tests = [_COLUMNS.tests_column] if Column.TESTS in needs.columns else []
        chosen = form or (AnswerForm.WHOLE if found is None else self._form(found))
        return Layout(given, found, chosen, tuple(dict.fromkeys([*kept, *tests])))

    def _form(self, answer: Template) -> AnswerForm:
        """The form that all answers have."""
        for form in (AnswerForm.HASHES, AnswerForm.BOXED):
            try:
                for record in self.records:
                    extract(answer.fill(record.columns), form)
            except InvalidValueError:
                continue
            return form
        return AnswerForm.WHOLE


@dataclass(frozen=True, slots=True)
class Converted:
    """A row of the data set, as written and as the trainer reads it."""

    columns: Columns
    row: Row


def convert(
    records: Iterable[Record], layout: Layout, reward: RewardType, *, skip_invalid: bool
) -> tuple[list[Converted], int]:
    """The rows, each distinct one once, and the number of invalid rows that were left out.

    Raises InvalidDataError with the faults of all rows, unless they are to be skipped.
    """
    needs = reward_class(reward)
    reads = RowNeeds(needs.columns, needs.reads_row)
    kept: dict[str, Converted] = {}
    faults: list[RowFault] = []
    for record in records:
        columns, missing = _columns(record, layout)
        row = missing or parse_row(Record(record.source, columns), _COLUMNS, reads)
        if isinstance(row, Row):
            kept[record.source] = Converted(columns, row)
        else:
            faults += row
    if issubclass(needs, MathReward):
        rows = [each.row for each in kept.values()]
        for fault in reference_faults(rows, RewardSpec().timeout_seconds, "the time limit"):
            faults.append(fault)
            del kept[fault.source]
    if faults and not (skip_invalid and kept):
        raise refuse(faults)
    distinct = {(e.row.messages, e.row.answer, e.row.tests): e for e in reversed(kept.values())}
    return list(reversed(distinct.values())), len({fault.source for fault in faults})


def _columns(record: Record, layout: Layout) -> tuple[Columns, tuple[RowFault, ...]]:
    """The columns of a row as written, or its faults."""
    columns: Columns = {}
    faults = []

    def put(name: str, template: Template, then: Callable[[Any], Any]) -> None:
        try:
            columns[name] = then(template.fill(record.columns))
        except InvalidValueError as error:
            faults.append(RowFault(record.source, error.requirement, error.value, template.name))

    put(_COLUMNS.prompt_column, layout.prompt, lambda value: value)
    if layout.answer is not None:
        put(_COLUMNS.answer_column, layout.answer, lambda value: extract(value, layout.form))
    kept = {name: record.columns[name] for name in layout.keep if name in record.columns}
    return {**kept, **columns}, tuple(faults)


def extract(value: Any, form: AnswerForm) -> Any:
    """The reference answer in a value. Raises InvalidValueError."""
    if form is AnswerForm.WHOLE:
        return value
    text = str(value)
    if form is AnswerForm.HASHES:
        _, _, found = text.rpartition(HASHES) if HASHES in text else ("", "", "")
        where = f"a text behind {HASHES}"
    else:
        found = boxed_answer(text).answer or ""
        where = r"\boxed{...}"
    if not found.strip():
        raise InvalidValueError(shown(text), f"must contain {where}")
    return found.strip()


def _guess(option: str, usual: Sequence[str], names: Sequence[str]) -> str:
    for name in usual:
        if name in names:
            return f"{{{name}}}"
    raise InvalidInputError(
        f"{option}: Required value: a template of columns such as {{{usual[1]}}}; the table has "
        f"{', '.join(names)}"
    )
