"""The number of producers that a run wants, from the waiting times of consumers and producers.

The demand is the number of producers that would generate a step's groups in the time that the
consumers need to train on them. It does not depend on the current number of producers, so one
change does not cause the next.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

WINDOW_STEPS = 4
WINDOW_SECONDS = 20.0
"""Producers are added by the evidence of at least so many steps and seconds."""
PATIENCE = 3
"""Producers are removed by the evidence of this many windows: a removed one is slow to return."""
MORE = 1.05
"""Producers are added while the demand exceeds this multiple of their number."""
FEWER = 0.8
"""Producers are removed while the remaining ones are busy for at most this share of time."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One step."""

    seconds: float
    """Wall time."""
    waited: float
    """Seconds that the consumers waited for a batch."""
    busy: float
    """Busy seconds of all producers together."""
    ahead: float | None
    """Groups that were ready at its end, in steps; None on-policy, where none can be."""


@dataclass(frozen=True, slots=True)
class Range:
    """The permitted numbers of producers."""

    low: int
    high: int

    def clamp(self, count: int) -> int:
        return min(self.high, max(self.low, count))


def wanted(samples: Iterable[Sample], ready: int, before: int, bounds: Range) -> int:
    """The number of producers, given the work of `ready` ones; `before` is the last result.

    More, at most twice as many, where the consumers wait and the buffer is empty. Fewer, where the
    remaining ones still keep ahead of the consumers. Between the two thresholds the number stays,
    and either change ends there.
    """
    samples = tuple(samples)
    busy = sum(sample.busy for sample in samples)
    worked = sum(sample.seconds - sample.waited for sample in samples)
    if ready == 0 or busy <= 0:
        return bounds.clamp(before)
    highest = 2 * MORE * ready
    demand = highest if worked * highest <= busy else busy / worked
    ahead = [sample.ahead for sample in samples if sample.ahead is not None]
    stocked = not ahead or sum(ahead) / len(ahead) >= 1
    if demand > MORE * ready and not (ahead and stocked):
        return bounds.clamp(max(before, ceil(demand / MORE)))
    if demand < FEWER * (ready - 1) and stocked:
        return bounds.clamp(min(before, ceil(demand / FEWER)))
    return bounds.clamp(before)


class Autoscaler:
    """Computes the wanted number of producers after each step."""

    def __init__(self, bounds: Range) -> None:
        self._bounds = bounds
        self._seen: list[Sample] = []
        """Steps since the last change."""
        self._ready = 0
        self.wanted: int | None = None
        """The last result; None before the first full window."""

    def observe(self, sample: Sample, ready: int) -> int | None:
        """The number of producers wanted after a step at whose end `ready` were ready."""
        if ready != self._ready:
            # Part of the step ran with another number of producers.
            self._ready, self._seen = ready, []
            return self.wanted
        self._seen.append(sample)
        recent, long = self._last(1), self._last(PATIENCE)
        if recent is None:
            return self.wanted
        before = ready if self.wanted is None else self.wanted
        self.wanted = max(before, wanted(recent, ready, before, self._bounds))
        if long is not None:
            self._seen = list(long)
            if self.wanted == before:
                self.wanted = min(before, wanted(long, ready, before, self._bounds))
        self.wanted = self._bounds.clamp(self.wanted)
        if self.wanted != before:
            self._seen = []
        return self.wanted

    def _last(self, windows: int) -> Sequence[Sample] | None:
        """The newest steps that fill `windows` windows; None while there are too few."""
        seconds = 0.0
        for count, sample in enumerate(reversed(self._seen), 1):
            seconds += sample.seconds
            if count >= windows * WINDOW_STEPS and seconds >= windows * WINDOW_SECONDS:
                return self._seen[-count:]
        return None
