"""What the training loop works with, and how a rollout becomes a group of the buffer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_trainer.algorithm.masks import has_signal
from grpo_trainer.consumer.records import PolicyOptions
from grpo_trainer.environments.health import EnvironmentHealth, Verdict
from grpo_trainer.messages import Rollout, ScoredGroup
from grpo_trainer.pipeline import ChangeSignal, Lease, RolloutBuffer
from grpo_trainer.reporting import Reporter
from grpo_trainer.rewards import Scorer, max_reward, shape
from grpo_trainer.spec import GRPOJobSpec, ResolvedAlgorithm

from .checkpoint_writer import CheckpointWriter
from .consumers import ConsumerGroup
from .evaluation import EvaluationQueue
from .prepare import Prepared
from .run_health import RunHealth
from .weight_publisher import WeightPublisher

PolicyFactory = Callable[[int, str], PolicyOptions]
"""Rank and path of the weights to start from -> the options of that rank's policy."""


@dataclass(slots=True, eq=False)
class RunContext:
    """What the training loop works with."""

    spec: GRPOJobSpec
    algorithm: ResolvedAlgorithm
    prepared: Prepared
    first_source: Mapping[str, Any]
    """Position in the data where the run began."""
    buffer: RolloutBuffer[ScoredGroup]
    scorer: Scorer
    consumers: ConsumerGroup
    publisher: WeightPublisher
    evaluations: EvaluationQueue
    changed: ChangeSignal
    policy: PolicyFactory
    checkpoints: CheckpointWriter
    reporter: Reporter
    scoring_errors: Counter[str]
    health: RunHealth
    environment: EnvironmentHealth
    logs: Path
    """Directory of the run's logs."""


async def score_rollout(context: RunContext, lease: Lease, rollout: Rollout) -> None:
    """Score a rollout and put it into the buffer, unless it carries no signal.

    Raises InvalidInputError or RunFailedError when no completion can be scored.
    """
    prompt, algorithm = context.prepared.train.prompts[lease.prompt.row], context.algorithm
    if prompt.environment_row is None:
        scores = await context.scorer.score(prompt.row, [c.text for c in rollout.completions])
        context.scoring_errors.update(s.error for s in scores if s.error is not None)
    else:
        checked = context.environment.check(rollout)
        context.scoring_errors.update(checked.errors)
        if checked.verdict is Verdict.REQUEUE:
            return context.buffer.requeue([lease])
        if checked.verdict is Verdict.FAIL:
            return context.buffer.fail(lease)
        rollout, scores = checked.rollout, checked.scores
    shaped = shape(
        scores,
        rollout.completions,
        algorithm,
        max_new_tokens=context.spec.completion_tokens,
        max_reward=max_reward(context.spec.reward),
    )
    group = ScoredGroup(rollout.opened(prompt), rollout, shaped)
    keep = not algorithm.dynamic_sampling or has_signal(group, algorithm)
    context.buffer.complete(lease, group, keep=keep)
