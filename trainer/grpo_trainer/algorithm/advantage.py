"""Advantages relative to the group, as in GRPO (https://arxiv.org/abs/2402.03300, 4.1.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_trainer.messages import Floats

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
    """[G] completions that have a reward; the others leave the loss."""


def group_advantages(rewards: Sequence[float | None], *, eps: float = 1e-4) -> GroupAdvantages:
    """(R - mean) / (std + eps) over the completions to one prompt, std with ddof 1.

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
    advantages[valid] = (scored - scored.mean()) / (std + eps)
    return GroupAdvantages(advantages, std=std, has_signal=True, valid=valid)
