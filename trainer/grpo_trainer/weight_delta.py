"""Lossless differences between weight versions, and the copy of a version that they are applied to.

With learning rates of reinforcement learning a step changes few elements in bfloat16. A delta holds
the changed 16-bit words and their distances, one byte each, so it needs 3 bytes for a changed
element of bfloat16 where a full version needs 2 for every element.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .weights import Bytes, TensorEntry, WeightBundle

Words = NDArray[np.uint16]

BLOCK_WORDS = 1 << 24
"""Words that are compared at a time, which bounds the memory for positions."""
MAX_DISTANCE = 255
FULL_INTERVAL = 64
"""Every version with a multiple of this number is sent in full."""
MAX_SHARE = 0.5
"""Deltas of more than this share of a full version's bytes are not sent."""
_CHECKED_WORDS = 4096
_SAMPLES, _SAMPLE_WORDS = 64, 4096
"""Parts of a version that are compared before all of it is."""
_DELTA_BYTES = 3
"""Of a changed word."""


class WeightsDifferError(RuntimeError):
    """A delta cannot be applied, or its result is not the version that was published."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightDelta:
    """What turns one stage of version `base` into that of `version`."""

    version: int
    base: int
    entries: tuple[TensorEntry, ...]
    """Of the whole stage."""
    distances: NDArray[np.uint8]
    """[N] words from each changed word to the next one; of a block's first from before the block.
    Where more than MAX_DISTANCE lie between, unchanged words are among them."""
    words: Words
    """[N] the new values."""
    counts: NDArray[np.int64]
    """[blocks] changed words in each block; they add up to N."""
    checksum: int
    """Of the whole stage of `version`."""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.distances.nbytes + self.words.nbytes + self.counts.nbytes


def checksum(data: Bytes) -> int:
    """CRC-32 over the sums of blocks of 8-byte words: a pass at the speed of memory."""
    whole = len(data) // 8 * 8
    words = data[:whole].view(np.uint64)
    blocks = len(words) // _CHECKED_WORDS * _CHECKED_WORDS
    sums = words[:blocks].reshape(-1, _CHECKED_WORDS).sum(axis=1, dtype=np.uint64)
    rest = words[blocks:].sum(dtype=np.uint64)
    return zlib.crc32(data[whole:].tobytes(), zlib.crc32(rest.tobytes(), zlib.crc32(sums)))


def difference(base: WeightBundle, target: WeightBundle) -> WeightDelta:
    """The delta from one version of a stage to another."""
    assert base.entries == target.entries
    old, new = base.data.view(np.uint16), target.data.view(np.uint16)
    distances, words, counts = [], [], []
    for start in range(0, len(new), BLOCK_WORDS):
        block = new[start : start + BLOCK_WORDS]
        changed = np.flatnonzero(old[start : start + BLOCK_WORDS] != block)
        steps = _distances(changed)
        distances.append(steps)
        words.append(block[_positions(steps)])
        counts.append(len(steps))
    return WeightDelta(
        version=target.version,
        base=base.version,
        entries=target.entries,
        distances=_joined(distances, np.uint8),
        words=_joined(words, np.uint16),
        counts=np.array(counts, dtype=np.int64),
        checksum=checksum(target.data),
    )


def apply(delta: WeightDelta, data: Bytes) -> None:
    """Turn the bytes of `delta.base` into those of `delta.version`, in place."""
    words = data.view(np.uint16)
    end = 0
    for block, count in enumerate(delta.counts.tolist()):
        begin, end = end, end + count
        start = block * BLOCK_WORDS
        positions = _positions(delta.distances[begin:end])
        words[start : start + BLOCK_WORDS][positions] = delta.words[begin:end]


def _distances(positions: NDArray[np.intp]) -> NDArray[np.uint8]:
    """Distances between positions, with further positions where they are too far apart."""
    if len(positions) == 0:
        return np.zeros(0, dtype=np.uint8)
    gaps = np.diff(positions, prepend=-1)
    between = (gaps - 1) // MAX_DISTANCE
    found = np.full(len(gaps) + int(between.sum()), MAX_DISTANCE, dtype=np.uint8)
    found[np.cumsum(between + 1) - 1] = gaps - MAX_DISTANCE * between
    return found


def _positions(distances: NDArray[np.uint8]) -> NDArray[np.int64]:
    return np.cumsum(distances, dtype=np.int64) - 1


def _joined(parts: Sequence[NDArray], dtype: type[np.generic]) -> NDArray:  # type: ignore[type-arg]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=dtype)


class DeltaEncoder:
    """The consumers' side: the version published last, and what has changed since."""

    def __init__(self) -> None:
        self._base: WeightBundle | None = None

    def encode(self, target: WeightBundle) -> WeightDelta | None:
        """The delta to a version from the one encoded before; None where it is to be sent in full.

        That is the case for the first version, for every FULL_INTERVAL-th, and where most of the
        weights have changed. Keeps a copy of the version.
        """
        base = self._base
        if base is None:
            self._base = _copy(target)
            return None
        self._base = WeightBundle(target.version, target.entries, base.data)
        if target.version % FULL_INTERVAL == 0 or _is_dense(base, target):
            np.copyto(base.data, target.data)
            return None
        delta = difference(base, target)
        apply(delta, base.data)
        return delta if delta.size <= MAX_SHARE * target.data.nbytes else None


def _is_dense(base: WeightBundle, target: WeightBundle) -> bool:
    """Whether a delta would be too large, judged by samples: comparing all takes far longer."""
    old, new = base.data.view(np.uint16), target.data.view(np.uint16)
    starts = np.linspace(0, max(0, len(new) - _SAMPLE_WORDS), _SAMPLES, dtype=np.int64)
    samples = [slice(start, start + _SAMPLE_WORDS) for start in starts.tolist()]
    changed = sum(int(np.count_nonzero(old[part] != new[part])) for part in samples)
    total = sum(len(new[part]) for part in samples)
    return changed * _DELTA_BYTES > MAX_SHARE * total * new.itemsize


class WeightMirror:
    """A producer's side: a host copy of the version that it applies."""

    def __init__(self) -> None:
        self._stages: dict[str, WeightBundle] = {}
        """By the name of the stage's first tensor."""

    def update(self, parts: Sequence[WeightBundle | WeightDelta]) -> list[WeightBundle]:
        """Apply full stages and deltas, in order of their versions; returns all stages.

        The bundles are overwritten by the next update. Raises WeightsDifferError where a delta has
        another base or another result; the mirror is empty then, and needs a full version.
        """
        ordered = sorted(parts, key=lambda part: part.version)
        if any(isinstance(part, WeightBundle) for part in ordered):
            self._stages.clear()
        for part in ordered:
            name = part.entries[0].name
            held = self._stages.get(name)
            if isinstance(part, WeightDelta):
                fault = self._apply(part, held)
                if fault:
                    self._stages.clear()
                    raise WeightsDifferError(f"version {part.version}: {fault}")
            else:
                self._stages[name] = _copy(part)
        return list(self._stages.values())

    def _apply(self, delta: WeightDelta, held: WeightBundle | None) -> str:
        """Apply a delta; returns what is wrong with it, or an empty text."""
        if held is None or held.version != delta.base:
            version = "no version" if held is None else f"version {held.version}"
            return f"its delta is from version {delta.base}, the producer holds {version}"
        apply(delta, held.data)
        name = delta.entries[0].name
        self._stages[name] = WeightBundle(delta.version, held.entries, held.data)
        found = checksum(held.data)
        if found != delta.checksum:
            return f"checksum {found:08x} instead of {delta.checksum:08x}"
        return ""


def _copy(bundle: WeightBundle) -> WeightBundle:
    return WeightBundle(bundle.version, bundle.entries, bundle.data.copy())
