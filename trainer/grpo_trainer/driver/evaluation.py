"""Evaluations: every row of every set, by one weight version, while training continues."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from grpo_trainer.events import EvaluatedSample, EvaluationReport
from grpo_trainer.messages import GenerationRequest, Prompt, Rollout
from grpo_trainer.pipeline import ChangeSignal
from grpo_trainer.rewards import Scorer

from .background import BackgroundTask
from .evaluated_sets import EvaluatedSet, evaluated, report, request_key, requests
from .weight_publisher import WeightPublisher

SCORED_ROWS = 64
"""Rows that are scored at a time."""


@dataclass(slots=True, eq=False)
class EvaluationRound:
    """Requests to be completed once each by one weight version."""

    version: int
    waiting: deque[GenerationRequest]
    missing: set[str]
    rollouts: dict[str, Rollout] = field(default_factory=dict)

    @classmethod
    def of(cls, version: int, requests: Sequence[GenerationRequest]) -> EvaluationRound:
        return cls(version, deque(requests), {request.request_id for request in requests})

    def claim(self, count: int) -> list[GenerationRequest]:
        """Up to `count` requests that no producer works on."""
        return [self.waiting.popleft() for _ in range(min(count, len(self.waiting)))]

    def complete(self, rollout: Rollout) -> None:
        """Record a result."""
        self.rollouts[rollout.request_id] = rollout
        self.missing.discard(rollout.request_id)

    def give_back(self, requests: Sequence[GenerationRequest]) -> None:
        """Return the incomplete requests of a producer that stopped."""
        self.waiting.extend(r for r in requests if r.request_id in self.missing)


class EvaluationQueue:
    """The evaluation round in progress, which producers serve; its version stays pinned."""

    def __init__(self, publisher: WeightPublisher, changed: ChangeSignal) -> None:
        self._publisher = publisher
        self._changed = changed
        self._round: EvaluationRound | None = None

    async def run(self, version: int, requests: Sequence[GenerationRequest]) -> dict[str, Rollout]:
        """Have every request completed once with exactly this version."""
        assert self._round is None, "one evaluation at a time"
        self._round = current = EvaluationRound.of(version, requests)
        self._publisher.pin(version)
        try:
            await self._changed.wait_for(lambda: not current.missing)
        finally:
            self._round = None
            self._publisher.unpin()
        return current.rollouts

    async def next_round(self, version: Callable[[], int]) -> EvaluationRound:
        """Wait for a round with waiting requests of the version that a producer has applied."""

        def due() -> EvaluationRound | None:
            found = self._round
            return found if found and found.waiting and found.version == version() else None

        await self._changed.wait_for(lambda: due() is not None)
        found = due()
        assert found is not None
        return found

    def complete(self, round_: EvaluationRound, rollout: Rollout) -> None:
        """Record a result of a round."""
        round_.complete(rollout)
        self._changed.notify()

    def give_back(self, round_: EvaluationRound, requests: Sequence[GenerationRequest]) -> None:
        """Return the incomplete requests of a producer that stopped."""
        round_.give_back(requests)
        self._changed.notify()


class Evaluator:
    """Evaluates the sets of a run in the background."""

    def __init__(
        self, sets: Mapping[str, EvaluatedSet], seed: int, queue: EvaluationQueue, scorer: Scorer
    ) -> None:
        self._sets = sets
        self._seed = seed
        self._queue = queue
        self._scorer = scorer
        self.background = BackgroundTask()
        """The evaluation in progress."""

    async def start(self, version: int, on_report: Callable[[EvaluationReport], None]) -> None:
        """Begin an evaluation of a version, after the one that still runs."""
        await self.background.join()
        self.background.start(self._run(version, on_report))

    async def _run(self, version: int, on_report: Callable[[EvaluationReport], None]) -> None:
        for of_set in await self.evaluate(version):
            on_report(of_set)

    async def evaluate(self, version: int) -> list[EvaluationReport]:
        """One report per set.

        Each sample of a row keeps its seed from one evaluation to the next, so that they differ by
        the weights alone.
        """
        began = time.monotonic()
        rollouts = await self._queue.run(version, requests(self._sets, self._seed))
        seconds = time.monotonic() - began
        return [
            report(version, name, of, await self._scored(name, of, rollouts), seconds)
            for name, of in self._sets.items()
        ]

    async def _scored(
        self, name: str, of: EvaluatedSet, rollouts: Mapping[str, Rollout]
    ) -> list[EvaluatedSample]:
        """All samples, those of a row side by side; several rows are scored at a time."""
        slots = asyncio.Semaphore(SCORED_ROWS)

        async def row(index: int, prompt: Prompt) -> list[EvaluatedSample]:
            of_row = [rollouts[request_key(name, index, sample)] for sample in range(of.samples)]
            async with slots:
                return await self._score_row(prompt, of_row)

        rows = (row(index, prompt) for index, prompt in enumerate(of.encoded.prompts))
        return [sample for samples in await asyncio.gather(*rows) for sample in samples]

    async def _score_row(
        self, prompt: Prompt, rollouts: Sequence[Rollout]
    ) -> list[EvaluatedSample]:
        completions = [rollout.completions[0] for rollout in rollouts]
        played = [c.episode.score for c in completions if c.episode is not None]
        if played:
            return [
                evaluated(rollout.opened(prompt), completion, score)
                for rollout, completion, score in zip(rollouts, completions, played, strict=True)
            ]
        scores = await self._scorer.score(prompt.row, [c.text for c in completions])
        pairs = zip(completions, scores, strict=True)
        return [evaluated(prompt, completion, score) for completion, score in pairs]
