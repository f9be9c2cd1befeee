"""What an evaluation estimates from several samples of each row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb, sqrt
from statistics import fmean, stdev

RIGHT = 1.0
"""Least accuracy of a right completion."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Accuracy over the rows of a set."""

    accuracy: float
    """Mean over rows of the mean over their samples (avg@n); 0 without any."""
    standard_error: float | None
    """Of that mean; None with fewer than two rows."""
    pass_at: dict[int, float]
    """Probability that one of k samples is right, for k = 2, 4, ... and all samples."""


def estimate(rows: Sequence[Sequence[float]]) -> Estimate:
    """From the accuracies of the scored samples of each row; rows without any do not count.

    The rows are the independent observations, so the error is that of their means, however many
    samples each has: "Adding Error Bars to Evals", https://arxiv.org/abs/2411.00640, section 2.
    """
    scored = [row for row in rows if row]
    means = [fmean(row) for row in scored]
    most = max(map(len, scored), default=0)
    return Estimate(
        accuracy=fmean(means) if means else 0.0,
        standard_error=stdev(means) / sqrt(len(means)) if len(means) > 1 else None,
        pass_at={k: _mean_pass_at(scored, k) for k in _sizes(most)},
    )


def pass_at(samples: int, right: int, k: int) -> float:
    """The unbiased estimate of the probability that one of k samples is right.

    1 - C(n - c, k) / C(n, k) for c of n right samples: "Evaluating Large Language Models Trained on
    Code", https://arxiv.org/abs/2107.03374, eq. 1.
    """
    assert 0 <= right <= samples and 1 <= k <= samples
    return 1.0 - comb(samples - right, k) / comb(samples, k)


def _sizes(most: int) -> Iterator[int]:
    """2, 4, 8, ... below the number of samples, and that number; none for a single sample."""
    k = 2
    while k < most:
        yield k
        k *= 2
    if most > 1:
        yield most


def _mean_pass_at(rows: Sequence[Sequence[float]], k: int) -> float:
    """Over the rows with at least k samples."""
    counts = [(len(row), sum(value >= RIGHT for value in row)) for row in rows if len(row) >= k]
    return fmean(pass_at(samples, right, k) for samples, right in counts)
