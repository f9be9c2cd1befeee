"""How often the status of a job is written when it tells of nothing but progress."""

import random
from dataclasses import dataclass, field

from .cache import Key

SETTLE_SECONDS = 2.0
"""How long progress waits for more of it: pods become ready one after the other."""


@dataclass
class StatusThrottle:
    """When each job's progress may be written. Times are of one monotonic clock, in seconds."""

    seconds: float
    """Least time between two writes; up to 30 % more, so that a thousand jobs make no bursts."""
    _earliest: dict[Key, float] = field(default_factory=dict)
    _due: dict[Key, float] = field(default_factory=dict)
    """Of progress that is known and not written."""

    def seconds_to_wait(self, key: Key, now: float) -> float:
        """How long progress that is there now has to wait; none when not positive."""
        settled = now + min(SETTLE_SECONDS, self.seconds)
        return self._due.setdefault(key, max(self._earliest.get(key, 0.0), settled)) - now

    def written(self, key: Key, now: float) -> None:
        """A status was written, so nothing waits."""
        self._due.pop(key, None)
        self._earliest[key] = now + self.seconds * random.uniform(1.0, 1.3)

    def forget(self, key: Key) -> None:
        """A job is gone."""
        self._due.pop(key, None)
        self._earliest.pop(key, None)
