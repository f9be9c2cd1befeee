"""Reads tables: parquet, CSV, TSV, JSON and JSON lines, also with gzip, of this machine or the Hub.

The trainer itself reads JSONL and parquet alone; see `data.files`.
"""

import csv
import gzip
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

from ..data.files import Record, parse_json, read_parquet
from ..errors import InvalidInputError, RunFailedError
from ..outages import is_outage
from ..row_faults import InvalidValueError, RowFault, refuse, shown

Columns = dict[str, Any]
"""A row of a table."""
Rows = Iterator[Record | RowFault]

HUB = "hf://datasets/"
_KINDS = ".jsonl, .json, .csv, .tsv or .parquet, the first four also with .gz"


def read_table(path: str) -> list[Record]:
    """All rows of a file, in order; `hf://datasets/OWNER/NAME[@REVISION]/FILE` is on the Hub.

    Raises InvalidDataError with the faults of all rows, and RunFailedError for an outage.
    """
    file = hub_file(path) if path.startswith(HUB) else Path(path)
    if not file.is_file():
        missing = "must be a file, not a directory" if file.is_dir() else "no such file"
        raise InvalidInputError(f"{path}: {missing} (working directory: {Path.cwd()})")
    found = list(_rows(path, file))
    faults = [row for row in found if isinstance(row, RowFault)]
    if faults:
        raise refuse(faults)
    if not found:
        raise refuse([RowFault(path, "at least one row")])
    return [row for row in found if isinstance(row, Record)]


def hub_file(uri: str) -> Path:
    """A file of a data set on the Hub, downloaded unless the cache has it."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    owner, _, rest = uri.removeprefix(HUB).partition("/")
    name, _, path = rest.partition("/")
    name, _, revision = name.partition("@")
    if not (owner and name and path):
        raise InvalidInputError(f"{uri}: must be {HUB}OWNER/NAME/FILE, as the Hub shows the file")
    try:
        return Path(
            hf_hub_download(f"{owner}/{name}", path, repo_type="dataset", revision=revision or None)
        )
    except LocalEntryNotFoundError as error:
        raise RunFailedError(
            f"{uri}: the Hub cannot be reached, and this machine's cache does not have the file; "
            "download it elsewhere, and give its path"
        ) from error
    except (HFValidationError, HfHubHTTPError) as error:
        if is_outage(error):
            raise RunFailedError(f"{uri}: the Hub does not answer: {_first_line(error)}") from error
        raise InvalidInputError(f"{uri}: no such file on the Hub: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _rows(path: str, file: Path) -> Rows:
    suffixes = [suffix.lower() for suffix in file.suffixes]
    packed = suffixes[-1:] == [".gz"]
    kind = (suffixes[:-1] if packed else suffixes)[-1:]
    readers: dict[str, Callable[[str, IO[bytes]], Rows]] = {
        ".json": _json,
        ".jsonl": _json_lines,
        ".ndjson": _json_lines,
        ".csv": lambda source, stream: _csv(source, stream, ","),
        ".tsv": lambda source, stream: _csv(source, stream, "\t"),
    }
    if kind == [".parquet"] and not packed:
        yield from read_parquet(file, path)
        return
    if not kind or kind[0] not in readers:
        raise refuse([RowFault(path, f"must be {_KINDS}", f"file extension {file.suffix!r}")])
    try:
        with gzip.open(file) if packed else file.open("rb") as stream:
            yield from readers[kind[0]](path, cast(IO[bytes], stream))
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise refuse([RowFault(path, "must be a whole gzip file", str(error))]) from error
    except PermissionError as error:
        raise refuse([RowFault(path, "must be readable (permission denied)", "file")]) from error


def _json_lines(path: str, stream: IO[bytes]) -> Rows:
    for number, line in enumerate(stream, 1):
        if line.strip():
            source = f"{path} line {number}"
            try:
                yield _record(source, parse_json(line.decode("utf-8-sig")))
            except UnicodeDecodeError as error:
                yield RowFault(source, "must be text in UTF-8", f"byte {error.start + 1}")
            except InvalidValueError as error:
                yield RowFault(source, error.requirement, error.value)


def _json(path: str, stream: IO[bytes]) -> Rows:
    """A list of objects, or an object with one such list."""
    import json

    try:
        data = json.loads(stream.read().decode("utf-8-sig"))
    except ValueError as error:
        raise refuse([RowFault(path, f"must be JSON ({error})", "file")]) from error
    if isinstance(data, dict):
        lists = [value for value in data.values() if isinstance(value, list)]
        data = lists[0] if len(lists) == 1 else data
    if not isinstance(data, list):
        must = "must be a list of objects, or an object with one; for one object a line, name it"
        raise refuse([RowFault(path, f"{must} .jsonl", shown(data))])
    for number, value in enumerate(data, 1):
        yield _record(f"{path} row {number}", value)


def _csv(path: str, stream: IO[bytes], delimiter: str) -> Rows:
    import io

    csv.field_size_limit(sys.maxsize)
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        if repeated := sorted({name for name in header if header.count(name) > 1}):
            raise refuse([RowFault(path, "must be column names, each once", shown(repeated))])
        for number, values in enumerate(reader, 1):
            if values:
                yield _csv_row(f"{path} row {number}", header, values)
    except csv.Error as error:
        yield RowFault(f"{path} line {reader.line_num}", f"must be CSV ({error})", "text")
    except UnicodeDecodeError as error:
        yield RowFault(path, "must be text in UTF-8", f"byte 0x{error.object[error.start]:02x}")


def _csv_row(source: str, header: Sequence[str], values: Sequence[str]) -> Record | RowFault:
    if len(values) != len(header):
        return RowFault(
            source, f"must be {len(header)}, as many as column names", f"{len(values)} values"
        )
    return Record(source, dict(zip(header, values, strict=True)))


def _record(source: str, value: Any) -> Record | RowFault:
    if isinstance(value, dict):
        return Record(source, value)
    return RowFault(source, "must be a JSON object", shown(value))
