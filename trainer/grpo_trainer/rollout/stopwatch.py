"""How long something took, in all."""

import time
from collections.abc import Callable


class Stopwatch:
    """Adds up the seconds spent inside its `with` block, a block under way included."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._before = 0.0
        self._since: float | None = None

    def __enter__(self) -> None:
        self._since = self._clock()

    def __exit__(self, *error: object) -> None:
        self._before, self._since = self.seconds, None

    @property
    def seconds(self) -> float:
        running = 0.0 if self._since is None else self._clock() - self._since
        return self._before + running
