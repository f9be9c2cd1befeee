"""Whether the weight files of a model directory are complete, from their headers alone.

Format: https://github.com/huggingface/safetensors#format. A file begins with the length of its
header as a little-endian 64-bit number; the header, JSON, has the byte range of each tensor.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grpo_trainer.errors import InvalidInputError, invalid

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_OTHER_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors library."""


def count_parameters(directory: Path) -> int | None:
    """Check the safetensors files of a model, and count the elements of their tensors.

    Returns None for weights in another format.

    Raises:
        InvalidInputError: a file is missing or damaged, or lacks a tensor of the index.
    """
    index = directory / INDEX
    if (directory / SINGLE).exists():
        shapes = read_header(directory / SINGLE)
    elif index.exists():
        shapes = _read_shards(index)
    elif any((directory / name).exists() for name in _OTHER_WEIGHTS):
        return None
    else:
        raise _damaged(directory, f"must contain weights: {SINGLE}, or {INDEX} with its files")
    return sum(math.prod(shape) for shape in shapes.values())


def _read_shards(index: Path) -> dict[str, tuple[int, ...]]:
    try:
        weight_map: dict[str, str] = json.loads(index.read_text())["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(index, f"must be JSON with a weight_map: {error!r}") from error
    shapes: dict[str, tuple[int, ...]] = {}
    for name in sorted(set(weight_map.values())):
        file = index.parent / name
        if not file.exists():
            raise _damaged(file, f"must exist, {index.name} names it; download the model again")
        found = read_header(file)
        missing = [t for t, of in weight_map.items() if of == name and t not in found]
        if missing:
            raise _damaged(file, f"must contain {missing[0]}, which {index.name} places there")
        shapes |= found
    return shapes


def read_header(file: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of a file's tensors by name; raises InvalidInputError for a damaged file."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        if size < _LENGTH_BYTES or not 0 < length <= min(_MAX_HEADER_BYTES, size - _LENGTH_BYTES):
            raise _damaged(file, "must be a safetensors file: its header is cut off or damaged")
        raw = stream.read(length)
    try:
        header: Mapping[str, Any] = json.loads(raw)
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        end = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
        shapes = {name: tuple(map(int, entry["shape"])) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(
            file, f"must be a safetensors file: its header is damaged: {error}"
        ) from error
    expected = _LENGTH_BYTES + length + end
    if size != expected:
        raise _damaged(
            file,
            f"must have {expected} bytes by its header and has {size}; download or copy it again",
        )
    return shapes


def _damaged(path: Path, fault: str) -> InvalidInputError:
    model = str(path if path.is_dir() else path.parent)
    must = f"must be a model with complete weights: {path} {fault}"
    return InvalidInputError(invalid("spec.model.path", model, must))


def stored_directory(path: str) -> Path | None:
    """The directory of a model: the path itself, or a Hub id's snapshot in the local cache."""
    if Path(path).is_dir():
        return Path(path)
    return next(_cached(path), None)


def _cached(path: str) -> Iterator[Path]:
    """The cached snapshot of a Hub id, if its weights are in it."""
    from huggingface_hub import try_to_load_from_cache

    for name in (SINGLE, INDEX):
        found = try_to_load_from_cache(path, name)
        if isinstance(found, str):
            yield Path(found).parent
