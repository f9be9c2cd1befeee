"""What the loop of a run works with, and how a rollout becomes a group of the buffer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from grpo_trainer.consumer.policy import PolicyOptions
from grpo_trainer.messages import Rollout, ScoredGroup
from grpo_trainer.pipeline import Lease, RolloutBuffer
from grpo_trainer.reporting import Reporter
from grpo_trainer.rewards import Scorer, shape
from grpo_trainer.spec import GRPOJobSpec, ResolvedAlgorithm

from .checkpoints import CheckpointStore
from .consumers import ConsumerGroup
from .prepare import Prepared

PolicyFactory = Callable[[int, str], PolicyOptions]
"""Rank and path of the weights to start from -> what that rank builds."""


@dataclass(slots=True, eq=False)
class RunContext:
    """What the loop works with."""

    spec: GRPOJobSpec
    algorithm: ResolvedAlgorithm
    prepared: Prepared
    first_source: Mapping[str, Any]
    """Position in the data where the run began."""
    buffer: RolloutBuffer[ScoredGroup]
    scorer: Scorer
    consumers: ConsumerGroup
    policy: PolicyFactory
    store: CheckpointStore
    reporter: Reporter
    scoring_errors: Counter[str]


async def score_rollout(parts: RunContext, lease: Lease, rollout: Rollout) -> None:
    """Score a rollout and put it into the buffer, unless it carries no signal."""
    prompt, algorithm = parts.prepared.train.prompts[lease.ticket.row], parts.algorithm
    scores = await parts.scorer.score(prompt.row, [c.text for c in rollout.completions])
    parts.scoring_errors.update(s.error for s in scores if s.error is not None)
    limit = parts.prepared.sampling.max_new_tokens
    group = ScoredGroup(prompt, rollout, shape(scores, rollout.completions, algorithm, limit))
    informative = algorithm.min_accuracy < group.accuracy < algorithm.max_accuracy
    parts.buffer.complete(lease, group, keep=informative or not algorithm.dynamic_sampling)
