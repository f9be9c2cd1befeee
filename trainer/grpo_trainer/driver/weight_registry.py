"""What all producers follow: the weights on offer and the evaluation in progress."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_trainer.messages import GenerationRequest, Rollout

NO_VERSION = -1

Fetch = Callable[[int], Awaitable[list[Any] | None]]
"""A version to references to its bundles, None if the consumers have it no more."""


@dataclass(slots=True, eq=False)
class EvaluationRound:
    """Prompts to be answered once each by one weight version."""

    version: int
    waiting: deque[GenerationRequest]
    missing: set[str]
    rollouts: dict[str, Rollout] = field(default_factory=dict)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def of(cls, version: int, requests: Sequence[GenerationRequest]) -> EvaluationRound:
        return cls(version, deque(requests), {request.request_id for request in requests})

    def claim(self, count: int) -> list[GenerationRequest]:
        """Up to `count` prompts that nobody answers yet."""
        return [self.waiting.popleft() for _ in range(min(count, len(self.waiting)))]

    def answer(self, rollout: Rollout) -> None:
        """Take in an answer; the last one ends the round."""
        self.rollouts[rollout.request_id] = rollout
        self.missing.discard(rollout.request_id)
        if not self.missing:
            self.done.set()

    def give_back(self, requests: Sequence[GenerationRequest]) -> None:
        """Prompts whose producer is gone; those it did answer stay answered."""
        self.waiting.extend(r for r in requests if r.request_id in self.missing)


class WeightRegistry:
    """Weight versions by number, and at most one evaluation, which pins the version it needs."""

    def __init__(self, fetch: Fetch) -> None:
        """`fetch` makes references to a version that was offered without."""
        self._changed = asyncio.Condition()
        self._fetch = fetch
        self._fetching = asyncio.Lock()
        self._versions: dict[int, list[Any] | None] = {}
        self._newest = NO_VERSION
        self.epoch = 0
        """Rises when the weights on offer are void; the same number is then other weights."""
        self.evaluation: EvaluationRound | None = None

    @property
    def target(self) -> int:
        """The version that producers should hold, NO_VERSION while there is none."""
        if self.evaluation is not None and self.evaluation.version in self._versions:
            return self.evaluation.version
        return self._newest

    def on_offer(self, version: int, epoch: int) -> bool:
        """Whether a version that was read in an epoch is still to be had."""
        return epoch == self.epoch and version in self._versions

    async def references(self, version: int) -> list[Any] | None:
        """Object references to a version's bundles.

        None when it is gone, because a newer one is on its way; it is taken down then.
        """
        async with self._fetching:
            epoch = self.epoch
            found = self._versions.get(version)
            if found is None and version in self._versions:
                found = await self._fetch(version)
                if self.on_offer(version, epoch):
                    self._settle(version, found)
            return found

    def _settle(self, version: int, references: list[Any] | None) -> None:
        if references is not None:
            self._versions[version] = references
            return
        del self._versions[version]
        if self._newest == version:
            self._newest = NO_VERSION

    async def offer(self, version: int, references: list[Any] | None) -> None:
        """Put up a version; the one before it stays only for an evaluation.

        Without references they are made when somebody asks for them.
        """
        pinned = self.evaluation.version if self.evaluation else None
        self._versions = {v: r for v, r in self._versions.items() if v == pinned}
        self._versions[version] = references
        self._newest = version
        await self.notify()

    async def withdraw(self) -> None:
        """Take everything down: whoever owned the weights is gone."""
        self._versions.clear()
        self._newest = NO_VERSION
        self.epoch += 1
        if self.evaluation is not None:
            self.evaluation.done.set()
        await self.notify()

    async def evaluate(
        self, version: int, requests: Sequence[GenerationRequest]
    ) -> dict[str, Rollout] | None:
        """Have every request answered once with exactly this version.

        Returns None if the version was withdrawn meanwhile.
        """
        assert self.evaluation is None, "one evaluation at a time"
        self.evaluation = evaluation = EvaluationRound.of(version, requests)
        try:
            await self.notify()
            await evaluation.done.wait()
        finally:
            self.evaluation = None
            await self.notify()
        return None if evaluation.missing else evaluation.rollouts

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a change that makes the condition true."""
        async with self._changed:
            await self._changed.wait_for(condition)

    async def until_changed(self) -> None:
        """Wait for any change."""
        async with self._changed:
            await self._changed.wait()

    async def notify(self) -> None:
        """Have all who wait look again."""
        async with self._changed:
            self._changed.notify_all()
