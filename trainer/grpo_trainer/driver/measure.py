"""The report of a step, from its batch, its training result and the state of the pipeline."""

import itertools
from collections.abc import Callable, Sequence

from grpo_trainer.algorithm.batching import StepBatch
from grpo_trainer.events import LoggedSample, PipelineState, StepReport
from grpo_trainer.messages import Floats, Ints, ScoredGroup
from grpo_trainer.pipeline import Batch

from .consumers import TrainedStep


def step_report(
    batch: Batch[ScoredGroup],
    built: StepBatch,
    trained: TrainedStep,
    pipeline: PipelineState,
    *,
    total_steps: int,
    prompts: int,
    seconds: float,
    phases: dict[str, float],
) -> StepReport:
    """The report of one step."""
    return StepReport(
        step=batch.step + 1,
        total_steps=total_steps,
        episode=batch.episode,
        seconds=seconds,
        phase_seconds=phases,
        statistics=built.statistics,
        sums=trained.sums,
        gradient_norm=trained.gradient_norm,
        learning_rate=trained.learning_rate,
        staleness=tuple(batch.step - group.version for group in batch.groups),
        pipeline=pipeline,
        prompts=prompts,
        skipped=trained.skipped,
        note=_note(batch, built, trained),
    )


def _note(batch: Batch[ScoredGroup], built: StepBatch, trained: TrainedStep) -> str:
    if trained.skipped:
        return "skipped: the gradients are not finite"
    if built.statistics.trained_samples == 0:
        if built.denominators.samples == 0:
            return "nothing to train on: no completion could be used"
        return "nothing to train on: within each group all rewards are equal"
    if batch.filtered:
        return f"{len(batch.filtered)} groups filtered"
    return ""


def token_log_ratios(
    groups: Sequence[ScoredGroup], built: StepBatch, log_ratios: Sequence[Sequence[Floats]]
) -> dict[int, list[float | None]]:
    """By the number of a completion, log r of each of its tokens; None for one off the loss.

    A completion that no forward pass saw is not in it.
    """
    completions = [(g.prompt, c) for g in groups for c in g.rollout.completions]
    found = {}
    for rows_of, parts, ratios_of in zip(built.rows, built.shards, log_ratios, strict=False):
        for rows, part, ratios in zip(rows_of, parts, ratios_of, strict=True):
            for row, number in enumerate(rows):
                prompt, completion = completions[number]
                begin = len(prompt.token_ids)
                place = slice(begin, begin + len(completion.token_ids))
                pairs = zip(ratios[row, place], part.mask[row, place], strict=True)
                found[number] = [round(float(r), 3) if counts else None for r, counts in pairs]
    return found


def logged_samples(
    groups: Sequence[ScoredGroup],
    built: StepBatch,
    log_ratios: Sequence[Sequence[Floats]] = (),
    token_texts: Callable[[Ints], list[str]] | None = None,
) -> list[LoggedSample]:
    """Every completion of a step with score and advantage, with `token_texts` also its tokens."""
    of_tokens = token_log_ratios(groups, built, log_ratios)
    numbers = itertools.count()
    return [
        LoggedSample(
            source=group.prompt.row.source,
            prompt=group.prompt.row.question,
            completion=completion.text,
            answer=group.prompt.row.answer,
            reward=score.reward,
            accuracy=score.accuracy,
            format_accuracy=score.format_accuracy,
            advantage=float(advantage),
            version=int(completion.versions.min()),
            response_tokens=completion.sampled_tokens,
            finish_reason=completion.finish_reason,
            reward_parts=score.parts,
            tokens=token_texts(completion.token_ids) if token_texts else None,
            log_ratios=of_tokens.get(next(numbers)),
        )
        for group, of_group in zip(groups, built.advantages, strict=True)
        for completion, score, advantage in zip(
            group.rollout.completions, group.scores, of_group, strict=True
        )
    ]
