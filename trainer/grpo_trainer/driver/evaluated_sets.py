"""What an evaluation set asks of the producers, and its report. Imports neither torch nor Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grpo_trainer.data import EncodedPrompts
from grpo_trainer.estimates import estimate
from grpo_trainer.events import EvaluatedSample, EvaluationReport
from grpo_trainer.messages import (
    Completion,
    GenerationRequest,
    Prompt,
    SamplingParams,
    Score,
)


@dataclass(frozen=True, slots=True, eq=False)
class EvaluatedSet:
    """The prompts of an evaluation set, and how completions are sampled for them."""

    encoded: EncodedPrompts
    samples: int
    """Completions for each prompt."""
    sampling: SamplingParams


def requests(sets: Mapping[str, EvaluatedSet], seed: int) -> list[GenerationRequest]:
    """One request for each sample of each prompt; those of one sampling are side by side."""
    made = []
    first = 0  # of the set's seeds
    for name, of in sets.items():
        count = len(of.encoded.prompts)
        made += [
            GenerationRequest(
                request_key(name, index, sample),
                prompt.token_ids,
                1,
                seed + first + sample * count + index,
                of.sampling,
                prompt.environment_row,
            )
            for sample in range(of.samples)
            for index, prompt in enumerate(of.encoded.prompts)
        ]
        first += count * of.samples
    return made


def report(
    step: int, name: str, of: EvaluatedSet, samples: list[EvaluatedSample], seconds: float
) -> EvaluationReport:
    """The report of a set; `samples` has those of a row side by side."""
    count = len(samples)
    rows = [samples[start : start + of.samples] for start in range(0, count, of.samples)]
    found = estimate([[s.accuracy for s in row if s.reward is not None] for row in rows])
    return EvaluationReport(
        step=step,
        dataset=name,
        accuracy=found.accuracy,
        format_accuracy=sum(s.format_accuracy for s in samples) / count,
        response_tokens_mean=sum(s.response_tokens for s in samples) / count,
        seconds=seconds,
        samples=tuple(samples),
        samples_per_row=of.samples,
        standard_error=found.standard_error,
        pass_at=found.pass_at,
    )


def request_key(name: str, index: int, sample: int) -> str:
    """The id of one sample's request."""
    return f"{name}:{index}:{sample}"


def evaluated(prompt: Prompt, completion: Completion, score: Score) -> EvaluatedSample:
    """A completion of an evaluation with its score."""
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
