"""The shares of several data sets in a pass, and the order of their rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Mixture:
    """A fixed number of rows of each data set in every pass.

    Rows are indices into the data sets one after the other. A set that is smaller than its share
    repeats rows within a pass, a larger one continues in the next pass where it ended: no row is
    used a second time before all of its set were used once.
    """

    sizes: tuple[int, ...]
    """Rows of each set."""
    counts: tuple[int, ...]
    """Rows of each set in a pass."""

    @classmethod
    def of(cls, sizes: Sequence[int], weights: Sequence[float]) -> "Mixture":
        """As many rows in a pass as all sets have, in the proportion of the weights."""
        return cls(tuple(sizes), shares(sum(sizes), weights))

    @property
    def count(self) -> int:
        """Rows of a pass."""
        return sum(self.counts)

    def order(self, seed: int, episode: int) -> Rows:
        """The rows of a pass, shuffled: a function of its arguments alone."""
        chosen, offset = [], 0
        for number, (size, count) in enumerate(zip(self.sizes, self.counts, strict=True)):
            chosen.append(offset + _stream((seed, number), size, episode * count, count))
            offset += size
        rows = np.concatenate(chosen)
        return rows[np.random.default_rng((seed, episode)).permutation(len(rows))]


def shares(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """`total` in proportion to the weights, by the largest remainders; each at least 1.

    Raises ValueError if there are more weights than `total`.
    """
    if len(weights) > total:
        raise ValueError(f"total must be at least {len(weights)}, got {total}")
    free = total - len(weights)
    exact = [weight / sum(weights) * total for weight in weights]
    above = [max(0.0, share - 1) for share in exact]
    scale = free / sum(above) if sum(above) else 0.0
    wanted = [share * scale for share in above]
    counts = [int(share) for share in wanted]
    by_remainder = sorted(range(len(weights)), key=lambda i: counts[i] - wanted[i])
    for index in by_remainder[: free - sum(counts)]:
        counts[index] += 1
    return tuple(1 + count for count in counts)


def _stream(seed: tuple[int, int], size: int, start: int, count: int) -> Rows:
    """Positions `start` to `start + count` of one shuffle of the set after the other."""
    cycles = range(start // size, (start + count - 1) // size + 1)
    shuffled = [np.random.default_rng((*seed, cycle)).permutation(size) for cycle in cycles]
    first = start - cycles.start * size
    return np.concatenate(shuffled)[first : first + count]
