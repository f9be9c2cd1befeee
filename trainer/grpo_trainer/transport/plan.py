"""How a weight version is split into buckets, and the members of a group: no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from grpo_trainer.weights import TensorEntry

BUCKET_BYTES = 64 << 20
"""Sent at once, and held by a receiver beside its model; a larger tensor is its own bucket."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The tensors of one sender, and its address."""

    host: str
    port: int
    entries: tuple[TensorEntry, ...]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A receiver's place in one stage's group; the sender has rank 0."""

    stage: Stage
    rank: int
    """Of an engine's first process; its other processes follow."""
    size: int
    """Of the group, the sender included."""
    backend: str
    """`gloo` or `nccl`."""

    def plain(self) -> tuple[Any, ...]:
        """As nested tuples, for any message format."""
        return astuple(self)

    @classmethod
    def of(cls, plain: Sequence[Any]) -> GroupMember:
        """From the nested sequences of a message."""
        (host, port, entries), rank, size, backend = plain
        records = tuple(TensorEntry(n, d, tuple(s), o, b) for n, d, s, o, b in entries)
        return cls(Stage(host, port, records), rank, size, backend)


def buckets(
    entries: Sequence[TensorEntry], limit: int = BUCKET_BYTES
) -> Iterator[tuple[TensorEntry, ...]]:
    """Neighbouring tensors whose bytes lie within `limit`, each of them whole."""
    bucket: list[TensorEntry] = []
    for entry in entries:
        if bucket and entry.offset + entry.size - bucket[0].offset > limit:
            yield tuple(bucket)
            bucket = []
        bucket.append(entry)
    if bucket:
        yield tuple(bucket)


def span(bucket: Sequence[TensorEntry]) -> slice:
    """The bytes of a bucket in the buffer of its stage."""
    return slice(bucket[0].offset, bucket[-1].offset + bucket[-1].size)
