"""Evaluations: every row of every set once, by one weight version, while training goes on."""

import time
from collections.abc import Mapping

from grpo_trainer.data import EncodedPrompts
from grpo_trainer.events import EvaluatedSample, EvaluationReport
from grpo_trainer.messages import GenerationRequest, Prompt, Rollout, SamplingParams, Score
from grpo_trainer.rewards import Scorer

from .weight_registry import WeightRegistry


class Evaluator:
    """Evaluates the sets of a run."""

    def __init__(
        self,
        sets: Mapping[str, EncodedPrompts],
        sampling: SamplingParams,
        seed: int,
        board: WeightRegistry,
        scorer: Scorer,
    ) -> None:
        self._sets = sets
        self._sampling = sampling
        self._seed = seed
        self._board = board
        self._scorer = scorer

    async def evaluate(self, version: int) -> list[EvaluationReport]:
        """One report per set; none when the version went away with the consumers.

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
            GenerationRequest(key, prompt.token_ids, 1, self._seed + number, self._sampling)
            for number, (key, prompt) in enumerate(prompts.items())
        ]
        rollouts = await self._board.evaluate(version, requests)
        if rollouts is None:
            return []
        seconds = time.monotonic() - began
        reports = []
        for name, encoded in self._sets.items():
            keys = [f"{name}:{index}" for index in range(len(encoded.prompts))]
            samples = [await self._sample(prompts[key], rollouts[key]) for key in keys]
            reports.append(_report(version, name, samples, seconds))
        return reports

    async def _sample(self, prompt: Prompt, rollout: Rollout) -> EvaluatedSample:
        completion = rollout.completions[0]
        (score,) = await self._scorer.score(prompt.row, [completion.text])
        return _evaluated(prompt, rollout, score)


def _evaluated(prompt: Prompt, rollout: Rollout, score: Score) -> EvaluatedSample:
    completion = rollout.completions[0]
    return EvaluatedSample(
        source=prompt.row.source,
        prompt=prompt.row.messages[-1].content,
        completion=completion.text,
        answer=prompt.row.answer,
        reward=score.reward,
        accuracy=score.accuracy,
        format_accuracy=score.format_accuracy,
        response_tokens=len(completion.token_ids),
        finish_reason=completion.finish_reason,
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
