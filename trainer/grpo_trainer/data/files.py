"""Reads JSONL and parquet: every row as a dict, and a fault for each that cannot be read."""

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ..errors import InvalidDataError
from ..row_faults import InvalidValueError, RowFault, refuse, shown
from ..spec.training import HUB_SCHEME
from .hub import hub_files

_OBJECT = "must be a JSON object on one line"
_UTF8 = "must be text in UTF-8"
_MAX_LINE_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Record:
    """A row as it is in the file."""

    source: str
    """`file.jsonl line 3` or `file.parquet row 3`, counted from 1."""
    columns: dict[str, Any]


def read_records(path: str) -> Iterator[Record | RowFault]:
    """The rows of a `.jsonl` or `.parquet` file, or of a split on the Hub, in order.

    Blank lines of a JSONL file are skipped.

    Raises InvalidDataError if the file does not exist, cannot be read or is of another kind, and
    RunFailedError while the Hub cannot be reached.
    """
    if path.startswith(HUB_SCHEME):
        for name, cached in hub_files(path):
            yield from read_parquet(cached, f"{path} {name}")
        return
    file = Path(path)
    readers = {".jsonl": _read_jsonl, ".parquet": read_parquet}
    if not file.exists():
        raise InvalidDataError(f"{path}: no such file (working directory: {Path.cwd()})")
    if file.is_dir():
        raise refuse([RowFault(path, "must be a .jsonl or .parquet file", "directory")])
    if file.suffix.lower() not in readers:
        kinds = " or ".join(readers)
        must = f"must be {kinds}; `grpo data` converts other tables"
        raise refuse([RowFault(path, must, f"file extension {file.suffix!r}")])
    yield from readers[file.suffix.lower()](file)


def _read_jsonl(file: Path) -> Iterator[Record | RowFault]:
    # Lines of a binary file end at \n alone; str.splitlines would also split at U+2028 in a text.
    try:
        stream = file.open("rb")
    except PermissionError:
        raise refuse([_unreadable(file)]) from None
    with stream:
        for number, line in enumerate(stream, 1):
            text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if not text.strip():
                continue
            source = f"{file} line {number}"
            try:
                yield Record(source, _parse_line(text))
            except InvalidValueError as error:
                incomplete = not line.endswith((b"\n", b"}", b"]"))
                hint = "; the line has no end: is the file truncated?" if incomplete else ""
                yield RowFault(source, error.requirement + hint, error.value)


def _parse_line(line: bytes) -> dict[str, Any]:
    try:
        row = parse_json(line.decode())
    except UnicodeDecodeError as error:
        value = f"byte 0x{line[error.start]:02x} at byte {error.start + 1}"
        raise InvalidValueError(value, _UTF8) from None
    if not isinstance(row, dict):
        raise InvalidValueError(shown(row), _OBJECT)
    return row


def parse_json(text: str) -> Any:
    """Strict JSON: NaN, Infinity and, in an object, half surrogate pairs are refused too.

    Raises InvalidValueError.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except InvalidValueError:
        raise
    except json.JSONDecodeError as error:
        start = shown(text.strip(), width=_MAX_LINE_SHOWN)
        reason = f"{error.msg[:1].lower()}{error.msg[1:]} at character {error.pos + 1}"
        raise InvalidValueError(start, f"{_OBJECT} ({reason})") from None
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits, deep nesting
        start = shown(text.strip(), width=_MAX_LINE_SHOWN)
        raise InvalidValueError(start, f"{_OBJECT} ({error})") from None
    # Only an escape can bring half of a pair into a text that was valid UTF-8.
    if isinstance(value, dict) and "\\ud" in text.lower():
        _refuse_half_pairs(value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidValueError(name, "must be a finite number")


def _refuse_half_pairs(columns: dict[str, Any]) -> None:
    for key, value in columns.items():
        try:
            json.dumps([key, value], ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            raise InvalidValueError(
                f"half a surrogate pair ({half}) in {key!r}", "must be whole characters"
            ) from None


def read_parquet(file: Path, name: str | None = None) -> Iterator[Record | RowFault]:
    """`name` is that in messages; the path when absent."""
    import pyarrow
    import pyarrow.parquet

    try:
        parquet = pyarrow.parquet.ParquetFile(file)
    except PermissionError:
        raise refuse([_unreadable(file)]) from None
    except pyarrow.ArrowInvalid as error:
        raise refuse([RowFault(str(file), f"must be a parquet file ({error})", "file")]) from None
    with parquet:
        number = 0
        for batch in parquet.iter_batches(batch_size=1024):
            for row in _rows_of(batch):
                number += 1
                source = f"{name or file} row {number}"
                if isinstance(row, dict):
                    yield Record(source, row)
                else:
                    yield RowFault(source, _UTF8, str(row))


def _rows_of(batch: Any) -> list[dict[str, Any] | UnicodeDecodeError]:
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError as error:
        if batch.num_rows == 1:
            return [error]
        return [row for i in range(batch.num_rows) for row in _rows_of(batch.slice(i, 1))]


def _unreadable(file: Path) -> RowFault:
    return RowFault(str(file), "must be readable (permission denied)", "file")
