"""Reading JSONL and parquet: every row as a dict, and a fault for each that cannot be read."""

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from .faults import Fault, UnfitError, refuse, shown

_OBJECT = "a JSON object on one line"


@dataclass(frozen=True, slots=True)
class Record:
    """A row as it stands in the file."""

    source: str
    """`file.jsonl line 3` or `file.parquet row 3`, counted from 1."""
    columns: dict[str, Any]


def read_records(path: str) -> Iterator[Record | Fault]:
    """The rows of a `.jsonl` or `.parquet` file in order; blank lines of a JSONL file are skipped.

    Raises InvalidDataError when there is no such file or it is of another kind.
    """
    file = Path(path)
    readers = {".jsonl": _read_jsonl, ".parquet": _read_parquet}
    if not file.exists():
        raise refuse([Fault(path, "no such file", f"a file, seen from {Path.cwd()}")])
    if file.is_dir():
        raise refuse([Fault(path, "a directory", "a .jsonl or .parquet file")])
    if file.suffix.lower() not in readers:
        raise refuse([Fault(path, f"file ending {file.suffix!r}", " or ".join(readers))])
    return readers[file.suffix.lower()](file)


def _read_jsonl(file: Path) -> Iterator[Record | Fault]:
    # Lines of a binary file end at \n alone; str.splitlines would also cut at U+2028 inside a text.
    try:
        stream = file.open("rb")
    except PermissionError:
        raise refuse([Fault(str(file), "no permission to read", "a readable file")]) from None
    with stream:
        for number, line in enumerate(stream, 1):
            text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if not text.strip():
                continue
            source = f"{file} line {number}"
            try:
                yield Record(source, _parse_line(text))
            except UnfitError as unfit:
                cut = not line.endswith((b"\n", b"}"))
                hint = "; the line has no end: is the file cut off?" if cut else ""
                yield Fault(source, unfit.found + hint, unfit.legal)


def _parse_line(line: bytes) -> dict[str, Any]:
    try:
        row = parse_json(line.decode())
    except UnicodeDecodeError as error:
        found = f"byte 0x{line[error.start]:02x} at byte {error.start + 1}"
        raise UnfitError(found, "text in UTF-8") from None
    if not isinstance(row, dict):
        raise UnfitError(shown(row), _OBJECT)
    return row


def parse_json(text: str) -> Any:
    """Strict JSON: NaN, Infinity and, in an object, half surrogate pairs are refused too.

    Raises UnfitError.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except UnfitError:
        raise
    except json.JSONDecodeError as error:
        raise UnfitError(f"{error.msg} at character {error.pos + 1}", _OBJECT) from None
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits, deep nesting
        raise UnfitError(str(error), _OBJECT) from None
    # Only an escape can bring half of a pair into a text that was valid UTF-8.
    if isinstance(value, dict) and "\\ud" in text.lower():
        _refuse_half_pairs(value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise UnfitError(name, "finite numbers")


def _refuse_half_pairs(columns: dict[str, Any]) -> None:
    for key, value in columns.items():
        try:
            json.dumps([key, value], ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            found = f"half a surrogate pair ({half}) in {key!r}"
            raise UnfitError(found, "whole characters") from None


def _read_parquet(file: Path) -> Iterator[Record | Fault]:
    import pyarrow
    import pyarrow.parquet

    try:
        parquet = pyarrow.parquet.ParquetFile(file)
    except PermissionError:
        raise refuse([Fault(str(file), "no permission to read", "a readable file")]) from None
    except pyarrow.ArrowInvalid as error:
        raise refuse([Fault(str(file), f"no parquet ({error})", "a parquet file")]) from None
    with parquet:
        number = 0
        for batch in parquet.iter_batches(batch_size=1024):
            for row in _rows_of(batch):
                number += 1
                source = f"{file} row {number}"
                if isinstance(row, dict):
                    yield Record(source, row)
                else:
                    yield Fault(source, str(row), "text in UTF-8")


def _rows_of(batch: Any) -> list[dict[str, Any] | UnicodeDecodeError]:
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError as error:
        if batch.num_rows == 1:
            return [error]
        return [row for i in range(batch.num_rows) for row in _rows_of(batch.slice(i, 1))]
