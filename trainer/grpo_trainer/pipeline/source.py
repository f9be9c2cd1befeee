"""The order of the prompts, and the outcome of each."""

import hashlib
import heapq
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.events import GroupCounts

from .mixture import Mixture

logger = logging.getLogger(__name__)


class PromptOutcome(StrEnum):
    """How a prompt leaves the run; each does so once."""

    TRAINED = "trained"
    FILTERED = "filtered"
    """Its group had no learning signal."""
    DROPPED = "dropped"
    """Its leases failed too often."""


@dataclass(frozen=True, slots=True)
class ScheduledPrompt:
    """A prompt of an episode, as it is leased."""

    serial: int
    """Position in the whole run, 0 <= serial < count * episodes."""
    row: int
    """Index into the data set."""
    episode: int
    attempt: int
    """Its failed leases."""
    seed: int
    """Sampling seed of 63 bits; the same when it is requeued, so that it is reproducible."""

    def retried(self) -> "ScheduledPrompt":
        """The same prompt after one more failure."""
        return replace(self, attempt=self.attempt + 1)


class SourceState(TypedDict):
    """A position in the data, as a checkpoint contains it."""

    count: int
    episodes: int
    seed: int
    done_below: int
    """All serials below it are finished."""
    done_beyond: list[int]
    """The finished serials above it, ascending."""
    groups: dict[str, int]
    mixture: list[list[int]] | None
    """Sizes of the data sets, and their rows in a pass."""


class PromptSource:
    """Returns `count` rows once per episode, in another order in each; with a mixture its rows.

    A requeued prompt is returned again until it is finished. The state contains finished prompts
    only: after a resume those in flight are returned again, and none is trained twice.
    """

    def __init__(
        self, count: int, episodes: int, seed: int, mixture: Mixture | None = None
    ) -> None:
        assert mixture is None or mixture.count == count, f"{count=}, {mixture=}"
        assert count > 0 and episodes > 0, f"{count=}, {episodes=}: no prompts"
        self.count = count
        self.episodes = episodes
        self.seed = seed
        self.mixture = mixture
        self._order: tuple[int, NDArray[np.int64]] = (-1, np.empty(0, np.int64))
        self._set_position(0, set(), GroupCounts())

    @property
    def exhausted(self) -> bool:
        """No prompt is left; those that were taken may still be requeued."""
        return not self._pending and self._fresh >= self.count * self.episodes

    @property
    def episode(self) -> int:
        """The episode of the oldest unfinished prompt."""
        return min(self._done_below // self.count, self.episodes - 1)

    @property
    def counts(self) -> GroupCounts:
        """Prompts by outcome, and how many were requeued."""
        return GroupCounts(**self._counts)

    def take(self) -> ScheduledPrompt | None:
        """The next prompt, requeued ones first, by serial; None if exhausted."""
        if self._pending:
            return heapq.heappop(self._pending)[1]
        if self.exhausted:
            return None
        serial = self._fresh
        self._advance_to(serial + 1)
        episode, index = divmod(serial, self.count)
        return ScheduledPrompt(
            serial, self._row(episode, index), episode, 0, self._sampling_seed(serial)
        )

    def requeue(self, prompt: ScheduledPrompt) -> None:
        """Return it again, before new ones."""
        self._assert_open(prompt.serial)
        self._counts["requeued"] += 1
        heapq.heappush(self._pending, (prompt.serial, prompt))

    def fail(self, prompt: ScheduledPrompt, max_attempts: int) -> None:
        """Requeue a prompt after a failed lease, or drop it after `max_attempts` of them."""
        prompt = prompt.retried()
        if prompt.attempt < max_attempts:
            self.requeue(prompt)
        else:
            logger.warning("row %d: dropped after %d attempts", prompt.row, prompt.attempt)
            self.finish(prompt.serial, PromptOutcome.DROPPED)

    def finish(self, serial: int, outcome: PromptOutcome) -> None:
        """Record the outcome of a prompt that was taken."""
        self._assert_open(serial)
        self._counts[outcome] += 1
        self._done_beyond.add(serial)
        while self._done_below in self._done_beyond:
            self._done_beyond.remove(self._done_below)
            self._done_below += 1

    def state_dict(self) -> SourceState:
        """The finished prompts, in JSON's types."""
        return SourceState(
            count=self.count,
            episodes=self.episodes,
            seed=self.seed,
            done_below=self._done_below,
            done_beyond=sorted(self._done_beyond),
            groups=asdict(self.counts),
            mixture=self._mixture_state(),
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the position to that of a state.

        Raises:
            InvalidInputError: the state is of other data, episodes or seed.
        """
        fields: dict[str, Any] = {
            "count": self.count,
            "episodes": self.episodes,
            "seed": self.seed,
            "mixture": self._mixture_state(),
        }
        state = {"mixture": None, **state}  # absent in checkpoints of earlier releases
        faults = [
            f"{field}: the checkpoint's data position is for {state[field]}, expected {ours};"
            " resume with what it was made with, or start in a new run directory"
            for field, ours in fields.items()
            if state[field] != ours
        ]
        if faults:
            raise InvalidInputError(faults)
        counts = GroupCounts(**state["groups"])
        self._set_position(state["done_below"], set(state["done_beyond"]), counts)

    def _mixture_state(self) -> list[list[int]] | None:
        mixture = self.mixture
        return None if mixture is None else [list(mixture.sizes), list(mixture.counts)]

    def _set_position(self, done_below: int, done_beyond: set[int], counts: GroupCounts) -> None:
        self._done_below = done_below
        self._done_beyond = done_beyond
        self._counts = Counter(asdict(counts))
        self._pending: list[tuple[int, ScheduledPrompt]] = []
        self._advance_to(done_below)

    def _advance_to(self, serial: int) -> None:
        while serial in self._done_beyond:
            serial += 1
        self._fresh = serial

    def _row(self, episode: int, index: int) -> int:
        # New serials ascend, so the order of one episode at a time is enough.
        if self._order[0] != episode:
            self._order = (episode, self._shuffled(episode))
        return int(self._order[1][index])

    def _shuffled(self, episode: int) -> NDArray[np.int64]:
        if self.mixture is not None:
            return self.mixture.order(self.seed, episode)
        return np.random.default_rng((self.seed, episode)).permutation(self.count)

    def _sampling_seed(self, serial: int) -> int:
        digest = hashlib.blake2b(f"{self.seed}/{serial}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def _assert_open(self, serial: int) -> None:
        assert self._done_below <= serial < self._fresh, f"serial {serial} was not taken"
        assert serial not in self._done_beyond, f"serial {serial} is finished"
