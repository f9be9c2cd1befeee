"""Advantages from rewards: relative to the group, and for one form to the batch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from grpo_trainer.messages import Floats
from grpo_trainer.spec import Advantage

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class GroupAdvantages:
    """The advantages of one prompt's completions."""

    advantages: Floats
    """[G]; 0 for completions that are not valid."""
    std: float
    """Standard deviation (ddof 1) of the valid rewards; 0 for fewer than two."""
    has_signal: bool
    """Whether any two valid rewards differ, so that there is something to learn."""
    valid: Bools
    """[G] completions that have a reward; the others are masked."""


def group_advantages(
    rewards: Sequence[float | None],
    form: Advantage = Advantage.GROUP_NORMALIZED,
    *,
    eps: float = 1e-4,
) -> GroupAdvantages:
    """The advantages of the completions of one prompt, from their rewards [G].

    R - mean, times G / (G - 1) for `leaveOneOut` (https://arxiv.org/abs/2402.14740), or divided by
    the standard deviation (ddof 1) plus eps for `groupNormalized` (GRPO,
    https://arxiv.org/abs/2402.03300, 4.1.2). `batchNormalized` needs `normalize_over_batch` too.

    A reward that is None or not finite leaves the statistics. Without two rewards that differ
    all advantages are exactly 0.
    """
    values = np.array([np.nan if r is None else r for r in rewards], dtype=np.float64)
    valid = np.isfinite(values)
    advantages = np.zeros(len(values), dtype=np.float32)
    scored = values[valid]
    # Not std > 0: the mean of equal values may differ from them in the last bit.
    if scored.size < 2 or scored.min() == scored.max():
        return GroupAdvantages(advantages, std=0.0, has_signal=False, valid=valid)
    std = float(scored.std(ddof=1))
    scale = 1.0
    if form is Advantage.GROUP_NORMALIZED:
        scale = 1 / (std + eps)
    elif form is Advantage.LEAVE_ONE_OUT:
        scale = scored.size / (scored.size - 1)
    advantages[valid] = (scored - scored.mean()) * scale
    return GroupAdvantages(advantages, std=std, has_signal=True, valid=valid)


def normalize_over_batch(
    groups: Sequence[GroupAdvantages], tokens: Sequence[NDArray[np.int64]], *, eps: float = 1e-8
) -> list[GroupAdvantages]:
    """Advantages with mean 0 and variance 1 over the tokens of a step.

    `tokens` has the tokens [G] in the loss of each completion of each group; an advantage counts
    once for each. (A - mean) / sqrt(var + eps), var with ddof 1: REINFORCE++ with baseline,
    https://arxiv.org/abs/2501.03262. Without two advantages that differ all stay as they are.
    """
    if not groups:
        return []
    values = np.concatenate([g.advantages for g in groups]).astype(np.float64)
    weights = np.concatenate(tokens)
    total = weights.sum()
    inside = values[weights > 0]
    if total < 2 or inside.min() == inside.max():
        return list(groups)
    mean = (values * weights).sum() / total
    variance = ((values - mean) ** 2 * weights).sum() / (total - 1)

    def normalized(group: GroupAdvantages, counts: NDArray[np.int64]) -> GroupAdvantages:
        scaled = (group.advantages - mean) / np.sqrt(variance + eps)
        scaled = np.where(counts > 0, scaled, 0.0).astype(np.float32)
        return replace(group, advantages=scaled)

    return [normalized(*pair) for pair in zip(groups, tokens, strict=True)]
