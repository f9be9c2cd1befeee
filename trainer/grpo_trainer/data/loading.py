"""Checked rows of a data set: every fault of every row is found before any model loads."""

import logging
from collections.abc import Iterator

from ..builtin.addition import ADDITION_PATHS, addition_rows
from ..builtin.names import is_builtin
from ..messages import Row
from ..spec.training import DatasetSpec, RewardType
from .faults import Fault, refuse
from .files import Record, read_records
from .rows import parse_row

_log = logging.getLogger(__name__)


def load_rows(path: str, columns: DatasetSpec, reward: RewardType) -> tuple[Row, ...]:
    """Read `path` (JSONL, parquet or `builtin://addition...`) and check each row for the reward.

    `columns` names the columns; its own path is not read, so that evaluation sets share it. Rows
    that repeat an earlier one are kept, and their number is logged.

    Raises InvalidDataError with the faults of all rows, or when there is no row at all.
    """
    rows: list[Row] = []
    faults: list[Fault] = []
    for record in _records(path):
        result = (record,) if isinstance(record, Fault) else parse_row(record, columns, reward)
        if isinstance(result, Row):
            rows.append(result)
        else:
            faults.extend(result)
    if faults:
        raise refuse(faults)
    if not rows:
        raise refuse([Fault(path, "no rows", "at least one row")])
    repeated = len(rows) - len({(row.messages, row.answer, row.tests) for row in rows})
    if repeated:
        _log.warning("%s: %d of %d rows repeat an earlier row", path, repeated, len(rows))
    return tuple(rows)


def _records(path: str) -> Iterator[Record | Fault]:
    if not is_builtin(path):
        yield from read_records(path)
        return
    if path not in ADDITION_PATHS:
        raise refuse([Fault(path, "no such built-in data set", " or ".join(ADDITION_PATHS))])
    for number, row in enumerate(addition_rows(ADDITION_PATHS[path]), 1):
        yield Record(f"{path} row {number}", row)
