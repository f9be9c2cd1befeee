"""How many producers a run wants, from what its consumers and producers waited for.

Producers are compared to consumers by one number, the demand: how many of them would generate a
step's groups in the time that the consumers need to train on it. It does not depend on how many
there are, so a change does not call for the next one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

WINDOW_STEPS = 4
WINDOW_SECONDS = 20.0
"""More producers are asked for by the last steps, so many and so long at the least."""
PATIENCE = 3
"""Fewer producers are asked for by this many such windows: what is given up is slow to come back.
"""
MORE = 1.05
"""Producers are added while the demand is above this much of their number."""
FEWER = 0.8
"""Producers are taken away while what is left is busy for at most this share of its time."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One step."""

    seconds: float
    """Wall time."""
    waited: float
    """Seconds that the consumers waited for a batch."""
    busy: float
    """Seconds that all producers together were at work."""
    ahead: float | None
    """Groups that were there at its end, in steps' worth; None where none can be: on-policy."""


@dataclass(frozen=True, slots=True)
class Range:
    """How many producers there may be."""

    low: int
    high: int

    def clamp(self, count: int) -> int:
        return min(self.high, max(self.low, count))


def wanted(samples: Iterable[Sample], ready: int, before: int, bounds: Range) -> int:
    """How many producers to have, given what `ready` of them did; `before` is the last answer.

    More, twice as many at most, where the consumers wait and the buffer runs dry. Fewer, where
    those that stay still keep ahead of the consumers. The band between holds the number still, and
    either change ends inside it.
    """
    samples = tuple(samples)
    busy = sum(sample.busy for sample in samples)
    worked = sum(sample.seconds - sample.waited for sample in samples)
    if ready == 0 or busy <= 0:
        return bounds.clamp(before)
    demand = busy / max(worked, busy / (2 * MORE * ready))
    ahead = [sample.ahead for sample in samples if sample.ahead is not None]
    stocked = not ahead or sum(ahead) / len(ahead) >= 1
    if demand > MORE * ready and not (ahead and stocked):
        return bounds.clamp(max(before, ceil(demand / MORE)))
    if demand < FEWER * (ready - 1) and stocked:
        return bounds.clamp(min(before, ceil(demand / FEWER)))
    return bounds.clamp(before)


class Autoscaler:
    """Follows a run, step by step."""

    def __init__(self, bounds: Range) -> None:
        self._bounds = bounds
        self._seen: list[Sample] = []
        """Since the last change."""
        self._ready = 0
        self.wanted: int | None = None
        """The last answer; None while too little was seen."""

    def observe(self, sample: Sample, ready: int) -> int | None:
        """How many producers to have after a step at whose end `ready` were up."""
        if ready != self._ready:
            # The step is in part of another number.
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
        """The newest steps that fill so many windows; None while there are too few."""
        seconds = 0.0
        for count, sample in enumerate(reversed(self._seen), 1):
            seconds += sample.seconds
            if count >= windows * WINDOW_STEPS and seconds >= windows * WINDOW_SECONDS:
                return self._seen[-count:]
        return None
