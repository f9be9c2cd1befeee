"""Evaluations: every row of every set once, by one weight version, while training continues."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from grpo_trainer.data import EncodedPrompts
from grpo_trainer.events import EvaluatedSample, EvaluationReport
from grpo_trainer.messages import GenerationRequest, Prompt, Rollout, SamplingParams, Score
from grpo_trainer.pipeline import ChangeSignal
from grpo_trainer.rewards import Scorer

from .background import BackgroundTask
from .weight_publisher import WeightPublisher


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
        self,
        sets: Mapping[str, EncodedPrompts],
        sampling: SamplingParams,
        seed: int,
        queue: EvaluationQueue,
        scorer: Scorer,
    ) -> None:
        self._sets = sets
        self._sampling = sampling
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
        for report in await self.evaluate(version):
            on_report(report)

    async def evaluate(self, version: int) -> list[EvaluationReport]:
        """One report per set.

        Each row keeps its seed from one evaluation to the next, so that they differ by the
        weights alone.
        """
        began = time.monotonic()
        prompts = {
            f"{name}:{index}": prompt
            for name, encoded in self._sets.items()
            for index, prompt in enumerate(encoded.prompts)
        }
        requests = [
            GenerationRequest(
                key,
                prompt.token_ids,
                1,
                self._seed + number,
                self._sampling,
                prompt.environment_row,
            )
            for number, (key, prompt) in enumerate(prompts.items())
        ]
        rollouts = await self._queue.run(version, requests)
        seconds = time.monotonic() - began
        reports = []
        for name, encoded in self._sets.items():
            keys = [f"{name}:{index}" for index in range(len(encoded.prompts))]
            samples = [await self._sample(prompts[key], rollouts[key]) for key in keys]
            reports.append(_report(version, name, samples, seconds))
        return reports

    async def _sample(self, prompt: Prompt, rollout: Rollout) -> EvaluatedSample:
        completion = rollout.completions[0]
        if completion.episode is not None:
            return _evaluated(rollout.opened(prompt), rollout, completion.episode.score)
        (score,) = await self._scorer.score(prompt.row, [completion.text])
        return _evaluated(prompt, rollout, score)


def _evaluated(prompt: Prompt, rollout: Rollout, score: Score) -> EvaluatedSample:
    completion = rollout.completions[0]
    return EvaluatedSample(
        source=prompt.row.source,
        prompt=prompt.row.question,
        completion=completion.text,
        answer=prompt.row.answer,
        reward=score.reward,
        accuracy=score.accuracy,
        format_accuracy=score.format_accuracy,
        response_tokens=completion.sampled_tokens,
        finish_reason=completion.finish_reason,
        reward_parts=score.parts,
    )


def _report(
    step: int, name: str, samples: list[EvaluatedSample], seconds: float
) -> EvaluationReport:
    count = len(samples)
    return EvaluationReport(
        step=step,
        dataset=name,
        accuracy=sum(s.accuracy for s in samples) / count,
        format_accuracy=sum(s.format_accuracy for s in samples) / count,
        response_tokens_mean=sum(s.response_tokens for s in samples) / count,
        seconds=seconds,
        samples=tuple(samples),
    )
