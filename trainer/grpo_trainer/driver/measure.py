"""The report of a step, from its batch, its training result and the state of the pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_trainer.algorithm.batching import StepBatch
from grpo_trainer.events import GroupCounts, LoggedSample, StepReport
from grpo_trainer.messages import Floats, ScoredGroup
from grpo_trainer.pipeline import Batch

from .accounting import PhaseName
from .consumers import TrainedStep


@dataclass(frozen=True, slots=True)
class PipelineState:
    """Buffer and workers at the end of a step."""

    depth: int
    capacity: int
    counts: GroupCounts
    producer_idle_ratio: float
    publish_seconds: float | None
    apply_seconds: float | None
    scoring_errors: dict[str, int]


def step_report(
    batch: Batch[ScoredGroup],
    built: StepBatch,
    trained: TrainedStep,
    state: PipelineState,
    *,
    total_steps: int,
    prompts: int,
    seconds: float,
    phases: dict[str, float],
) -> StepReport:
    """The report of one step."""
    statistics, sums = built.statistics, trained.sums
    return StepReport(
        step=batch.step + 1,
        total_steps=total_steps,
        episode=batch.episode,
        seconds=seconds,
        samples=statistics.samples,
        prompt_tokens=statistics.prompt_tokens,
        response_tokens=statistics.response_tokens,
        reward_mean=statistics.reward_mean,
        reward_std=statistics.reward_std,
        zero_std_fraction=statistics.zero_std_fraction,
        accuracy_mean=statistics.accuracy_mean,
        format_accuracy_mean=statistics.format_accuracy_mean,
        response_tokens_mean=statistics.response_tokens_mean,
        truncated_fraction=statistics.truncated_fraction,
        loss=sums.loss,
        kl=sums.per_token(sums.kl),
        entropy=sums.per_token(sums.entropy),
        clip_ratio_low=sums.per_token(sums.clipped_low),
        clip_ratio_high=sums.per_token(sums.clipped_high),
        importance_ratio_mean=sums.per_token(sums.ratio),
        gradient_norm=trained.gradient_norm,
        learning_rate=trained.learning_rate,
        staleness=tuple(batch.step - group.version for group in batch.groups),
        weight_version=batch.step + 1,
        buffer_depth=state.depth,
        buffer_capacity=state.capacity,
        consumer_idle_ratio=min(1.0, phases[PhaseName.TAKE] / seconds) if seconds else 0.0,
        producer_idle_ratio=state.producer_idle_ratio,
        phase_seconds=phases,
        publish_seconds=state.publish_seconds,
        apply_seconds=state.apply_seconds,
        groups=state.counts,
        prompts=prompts,
        scoring_errors=dict(state.scoring_errors),
        note=_note(batch, built),
    )


def _note(batch: Batch[ScoredGroup], built: StepBatch) -> str:
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
    """Every completion of a step with its reward and advantage."""
    return [
        LoggedSample(
            source=group.prompt.row.source,
            prompt=group.prompt.row.messages[-1].content,
            completion=completion.text,
            answer=group.prompt.row.answer,
            reward=score.reward,
            accuracy=score.accuracy,
            format_accuracy=score.format_accuracy,
            advantage=float(advantage),
            version=int(completion.versions.min()),
            response_tokens=len(completion.token_ids),
            finish_reason=completion.finish_reason,
        )
        for group, of_group in zip(groups, advantages, strict=True)
        for completion, score, advantage in zip(
            group.rollout.completions, group.scores, of_group, strict=True
        )
    ]
