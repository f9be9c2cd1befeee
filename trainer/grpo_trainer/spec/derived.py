"""Values that depend on the algorithm or the reward, resolved in one place."""

from dataclasses import dataclass
from typing import TypeVar

from .job import GRPOJobSpec
from .training import AlgorithmName, LossAggregation

T = TypeVar("T")


@dataclass(frozen=True)
class ResolvedAlgorithm:
    """The algorithm with every default filled in."""

    learning_rate: float
    kl_coefficient: float
    clip_low: float
    clip_high: float
    loss_aggregation: LossAggregation
    importance_sampling_cap: float
    dynamic_sampling: bool
    min_accuracy: float
    max_accuracy: float
    max_attempts: int
    overlong: bool
    overlong_buffer_tokens: int
    overlong_penalty: float | None
    """None: the reward of a right completion."""
    mask_truncated: bool


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def resolve_algorithm(spec: GRPOJobSpec) -> ResolvedAlgorithm:
    """Fill in what depends on the algorithm.

    DAPO's defaults are those of https://arxiv.org/abs/2503.14476, GRPO's the original script's.
    """
    a, dapo = spec.algorithm, spec.algorithm.name is AlgorithmName.DAPO
    aggregation = LossAggregation.TOKEN if dapo else LossAggregation.SAMPLE
    buffer_tokens = max(1, min(1024, spec.sampling.max_new_tokens // 4))
    return ResolvedAlgorithm(
        learning_rate=a.learning_rate,
        kl_coefficient=_or(a.kl_coefficient, 0.0 if dapo else 0.01),
        clip_low=a.clip_low,
        clip_high=_or(a.clip_high, 0.28 if dapo else 0.2),
        loss_aggregation=_or(a.loss_aggregation, aggregation),
        importance_sampling_cap=a.importance_sampling_cap,
        dynamic_sampling=_or(a.dynamic_sampling.enabled, dapo),
        min_accuracy=a.dynamic_sampling.min_accuracy,
        max_accuracy=a.dynamic_sampling.max_accuracy,
        max_attempts=a.dynamic_sampling.max_attempts,
        overlong=_or(a.overlong.enabled, dapo),
        overlong_buffer_tokens=_or(a.overlong.buffer_tokens, buffer_tokens),
        overlong_penalty=a.overlong.penalty,
        mask_truncated=_or(a.overlong.mask_truncated, dapo),
    )
