"""Checked rows of a data set: every fault of every row is found before any model loads."""

import logging
from collections.abc import Iterator

from ..builtin.data_sets import DATA_SETS
from ..builtin.names import is_builtin
from ..messages import Row
from ..rewards import RowNeeds
from ..row_faults import RowFault, refuse
from ..spec.training import DatasetSpec
from .files import Record, read_records
from .rows import parse_row

_log = logging.getLogger(__name__)


def load_rows(path: str, columns: DatasetSpec, needs: RowNeeds) -> tuple[Row, ...]:
    """Read `path` (JSONL, parquet or a built-in data set) and check what the reward needs.

    `columns` gives the names of the columns; its own path is not read, so that evaluation sets
    share it. Repeated rows are kept, and their number is logged.

    Raises InvalidDataError with the faults of all rows, or if there are no rows.
    """
    rows: list[Row] = []
    faults: list[RowFault] = []
    for record in _records(path):
        result = (record,) if isinstance(record, RowFault) else parse_row(record, columns, needs)
        if isinstance(result, Row):
            rows.append(result)
        else:
            faults.extend(result)
    if faults:
        raise refuse(faults)
    if not rows:
        raise refuse([RowFault(path, "at least one row")])
    repeated = len(rows) - len({_identity(row) for row in rows})
    if repeated:
        _log.warning("%s: %d of %d rows repeat an earlier row", path, repeated, len(rows))
    return tuple(rows)


def _identity(row: Row) -> tuple[object, ...]:
    """What makes a row the same as another; without messages, all of its columns."""
    return (row.messages, row.answer, row.tests) if row.messages else (repr(row.columns),)


def _records(path: str) -> Iterator[Record | RowFault]:
    if not is_builtin(path):
        yield from read_records(path)
        return
    if path not in DATA_SETS:
        known = " or ".join(DATA_SETS)
        raise refuse([RowFault("spec.dataset.path", f"must be {known}", repr(path))])
    for number, row in enumerate(DATA_SETS[path](), 1):
        yield Record(f"{path} row {number}", row)
