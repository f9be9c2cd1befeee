"""The algorithm of a spec with every default filled in."""

from dataclasses import dataclass
from typing import TypeVar

from .algorithm import (
    Advantage,
    CorrectionSpec,
    ImportanceRatio,
    KlForm,
    LossAggregation,
    LossForm,
    OptimizerSpec,
)
from .job import GRPOJobSpec
from .presets import PRESET_FIELDS, PRESETS

T = TypeVar("T")


@dataclass(frozen=True)
class ResolvedAlgorithm:
    """The algorithm with every default filled in."""

    learning_rate: float
    """At its peak."""
    optimizer: OptimizerSpec
    advantage: Advantage
    importance_ratio: ImportanceRatio
    loss_form: LossForm
    loss_aggregation: LossAggregation
    clip_low: float
    clip_high: float
    importance_sampling_cap: float
    kl_coefficient: float
    kl_form: KlForm
    entropy_coefficient: float
    correction: CorrectionSpec
    max_new_tokens: int
    """Length that aggregation `constant` divides by."""
    dynamic_sampling: bool
    min_accuracy: float
    max_accuracy: float
    max_attempts: int
    overlong: bool
    overlong_buffer_tokens: int
    overlong_penalty: float | None
    """None: half the maximum reward."""
    mask_truncated: bool


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def resolve_algorithm(spec: GRPOJobSpec) -> ResolvedAlgorithm:
    """Fill in the preset's values where the spec gives none."""
    a, preset = spec.algorithm, PRESETS[spec.algorithm.name]
    buffer_tokens = max(1, min(1024, spec.sampling.max_new_tokens // 4))
    return ResolvedAlgorithm(
        learning_rate=a.learning_rate,
        optimizer=a.optimizer,
        advantage=_or(a.advantage, preset.advantage),
        importance_ratio=_or(a.importance_ratio, preset.importance_ratio),
        loss_form=_or(a.loss_form, preset.loss_form),
        loss_aggregation=_or(a.loss_aggregation, preset.loss_aggregation),
        clip_low=_or(a.clip_low, preset.clip_low),
        clip_high=_or(a.clip_high, preset.clip_high),
        importance_sampling_cap=a.importance_sampling_cap,
        kl_coefficient=_or(a.kl_coefficient, preset.kl_coefficient),
        kl_form=_or(a.kl_form, preset.kl_form),
        entropy_coefficient=a.entropy_coefficient,
        correction=a.correction,
        max_new_tokens=spec.sampling.max_new_tokens,
        dynamic_sampling=_or(a.dynamic_sampling.enabled, preset.dynamic_sampling),
        min_accuracy=a.dynamic_sampling.min_accuracy,
        max_accuracy=a.dynamic_sampling.max_accuracy,
        max_attempts=a.dynamic_sampling.max_attempts,
        overlong=_or(a.overlong.enabled, preset.overlong),
        overlong_buffer_tokens=_or(a.overlong.buffer_tokens, buffer_tokens),
        overlong_penalty=a.overlong.penalty,
        mask_truncated=_or(a.overlong.mask_truncated, preset.overlong),
    )


def min_learning_rate(algorithm: ResolvedAlgorithm) -> float:
    """The learning rate at the end of the decay."""
    given = algorithm.optimizer.min_learning_rate
    return algorithm.learning_rate / 10 if given is None else given


def resolved_spec(spec: GRPOJobSpec) -> GRPOJobSpec:
    """The spec with the defaults that depend on other fields of it, so that it means the same to
    every version that reads it.

    Absent stay the defaults of the reward's implementation: its system message, its stop strings,
    and the penalty for long completions.
    """
    resolved, given = resolve_algorithm(spec), spec.algorithm
    fields = {
        name: getattr(resolved, name)
        for name in PRESET_FIELDS
        # A preset may lie outside the range of the field: CISPO has no lower bound.
        if not (name == "clip_low" and resolved.clip_low >= 1)
    }
    dynamic_sampling = given.dynamic_sampling.model_copy(
        update={"enabled": resolved.dynamic_sampling}
    )
    overlong = given.overlong.model_copy(
        update={
            "enabled": resolved.overlong,
            "buffer_tokens": resolved.overlong_buffer_tokens,
            "mask_truncated": resolved.mask_truncated,
        }
    )
    optimizer = given.optimizer.model_copy(
        update={"min_learning_rate": min_learning_rate(resolved)}
    )
    parts = {"dynamic_sampling": dynamic_sampling, "overlong": overlong, "optimizer": optimizer}
    buffer = spec.buffer.model_copy(update={"max_prompts": spec.buffer_capacity})
    algorithm = given.model_copy(update=fields | parts)
    return spec.model_copy(update={"algorithm": algorithm, "buffer": buffer})
