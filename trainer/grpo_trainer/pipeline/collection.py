"""The groups of the next steps: complete, and not handed out yet."""

import heapq
import logging
from collections.abc import Iterator
from operator import attrgetter
from typing import Generic

from .batch import Batch, BufferedGroup, GroupT
from .source import ScheduledPrompt

logger = logging.getLogger(__name__)


class Collection(Generic[GroupT]):
    """Complete groups by staleness, and the dynamic sampling of the step that they lead up to."""

    def __init__(self, groups_per_step: int, max_attempts: int) -> None:
        """`max_attempts`: a step generates at most this many times its groups. It is then smaller;
        if none was kept, it generates as many again."""
        assert groups_per_step > 0 and max_attempts > 0
        self._groups_per_step = groups_per_step
        self._attempts_per_step = max_attempts * groups_per_step
        self._attempts_left = self._attempts_per_step
        self._buffered: list[BufferedGroup[GroupT]] = []
        self._filtered: list[int] = []

    def __len__(self) -> int:
        return len(self._buffered)

    @property
    def filtered(self) -> int:
        """Prompts that were filtered since the last batch."""
        return len(self._filtered)

    @property
    def wanted(self) -> int:
        """Groups that the next batch can use, at least one: fewer when its attempts run out."""
        return min(self._groups_per_step, max(1, self._attempts_left))

    def add(self, prompt: ScheduledPrompt, group: GroupT) -> None:
        """Keep a group."""
        heapq.heappush(self._buffered, BufferedGroup(group.version, prompt.serial, prompt, group))

    def filter(self, prompt: ScheduledPrompt, step: int) -> None:
        """Replace a group. It is finished only with its step: a resumed run then repeats the step
        with all its attempts."""
        self._filtered.append(prompt.serial)
        self._attempts_left -= 1
        if self._attempts_left <= 0 and not self._buffered:
            logger.warning("step %d: kept none of %d groups", step, len(self._filtered))
            self._attempts_left = self._attempts_per_step

    def pop_stale(self, oldest_usable: int) -> Iterator[ScheduledPrompt]:
        """Remove the groups with a version below `oldest_usable`."""
        while self._buffered and self._buffered[0].version < oldest_usable:
            yield heapq.heappop(self._buffered).prompt

    def pop_batch(self, step: int) -> Batch[GroupT]:
        """Remove the groups of a step, those first that become too stale first."""
        size = min(self._groups_per_step, len(self._buffered))
        chosen = [heapq.heappop(self._buffered) for _ in range(size)]
        chosen.sort(key=attrgetter("serial"))
        return Batch(
            step=step,
            episode=chosen[-1].prompt.episode,
            serials=tuple(entry.serial for entry in chosen),
            groups=tuple(entry.group for entry in chosen),
            filtered=self.pop_filtered(),
        )

    def pop_filtered(self) -> tuple[int, ...]:
        """Remove the serials that were filtered, and begin the attempts of a step."""
        filtered, self._filtered = tuple(self._filtered), []
        self._attempts_left = self._attempts_per_step
        return filtered

    def clear(self) -> None:
        """Forget all groups."""
        self._buffered.clear()
        self.pop_filtered()
