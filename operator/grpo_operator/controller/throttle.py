"""How often a job's status is written when only its progress changed."""

import random
from dataclasses import dataclass, field

from .cache import Key

SETTLE_SECONDS = 2.0
"""How long progress waits for more: pods become ready one after another."""


@dataclass
class StatusThrottle:
    """When each job's progress may be written. Times are in seconds of one monotonic clock."""

    seconds: float
    """Minimum time between two writes; up to 30 % jitter prevents bursts of many jobs."""
    _earliest: dict[Key, float] = field(default_factory=dict)
    _due: dict[Key, float] = field(default_factory=dict)
    """Of progress that is not written yet."""

    def seconds_to_wait(self, key: Key, now: float) -> float:
        """Seconds until present progress may be written; not positive means now."""
        settled = now + min(SETTLE_SECONDS, self.seconds)
        return self._due.setdefault(key, max(self._earliest.get(key, 0.0), settled)) - now

    def written(self, key: Key, now: float) -> None:
        """Record that a status was written."""
        self._due.pop(key, None)
        self._earliest[key] = now + self.seconds * random.uniform(1.0, 1.3)

    def forget(self, key: Key) -> None:
        """Drop the records of a job that is gone."""
        self._due.pop(key, None)
        self._earliest.pop(key, None)
