"""A model's weights as one packed buffer: a version is complete or absent.

One contiguous array crosses the object store in a single transfer; readers on the same node map it
without a copy. numpy has no bfloat16, so types are given by name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor's place in the buffer."""

    name: str
    dtype: str
    """`float32`, `bfloat16`, ..."""
    shape: tuple[int, ...]
    offset: int
    """Bytes from the start."""
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightBundle:
    """The tensors of one weight version, or of one pipeline stage of it."""

    version: int
    entries: tuple[TensorEntry, ...]
    data: Bytes
    """[sum of sizes, aligned]"""

    def tensors(self) -> Iterator[tuple[TensorEntry, Bytes]]:
        """Each tensor with a view of its bytes."""
        for entry in self.entries:
            yield entry, self.data[entry.offset : entry.offset + entry.size]


def layout(tensors: Iterable[tuple[str, str, tuple[int, ...], int]]) -> tuple[TensorEntry, ...]:
    """Place tensors (name, dtype, shape, bytes) in order, each aligned to a cache line."""
    entries, offset = [], 0
    for name, dtype, shape, size in tensors:
        entries.append(TensorEntry(name, dtype, shape, offset, size))
        offset += -(-size // _ALIGNMENT) * _ALIGNMENT
    return tuple(entries)


def buffer_bytes(entries: tuple[TensorEntry, ...]) -> int:
    """Length of the buffer for the entries."""
    if not entries:
        return 0
    last = entries[-1]
    return last.offset + -(-last.size // _ALIGNMENT) * _ALIGNMENT
