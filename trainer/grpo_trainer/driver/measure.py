"""The report of a step, from its batch, its training result and the state of the pipeline."""

from collections.abc import Sequence

from grpo_trainer.algorithm.batching import StepBatch
from grpo_trainer.events import LoggedSample, PipelineState, StepReport
from grpo_trainer.messages import Floats, ScoredGroup
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


def logged_samples(
    groups: Sequence[ScoredGroup], advantages: Sequence[Floats]
) -> list[LoggedSample]:
    """Every completion of a step with its score and advantage."""
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
        )
        for group, of_group in zip(groups, advantages, strict=True)
        for completion, score, advantage in zip(
            group.rollout.completions, group.scores, of_group, strict=True
        )
    ]
