"""A curve in one line of text."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(
    values: Sequence[float], width: int, low: float | None = None, high: float | None = None
) -> str:
    """At most `width` characters, each the mean of equally many values.

    The lowest block is `low`, the highest one `high`; by default the ends of the curve itself.
    """
    points = resampled(values, width)
    if not points:
        return ""
    low = min(points) if low is None else low
    high = max(points) if high is None else high
    span = high - low
    if span <= 0:
        return _BLOCKS[0] * len(points)
    last = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(min(1.0, max(0.0, (p - low) / span)) * last)] for p in points)


def resampled(values: Sequence[float], width: int) -> list[float]:
    """The values themselves if they are few enough, else means of neighbours."""
    count = min(width, len(values))
    edges = [i * len(values) // count for i in range(count + 1)] if count else []
    return [fmean(values[begin:end]) for begin, end in pairwise(edges)]
