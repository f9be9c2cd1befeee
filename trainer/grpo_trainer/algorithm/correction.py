"""Importance weights of the policy at the start of a step over the behaviour policy."""

from dataclasses import dataclass

import torch
from torch import Tensor

from grpo_trainer.spec import CorrectionSpec, CorrectionWeights, WeightLevel

# exp(20) = 5e8 can be summed in fp32 without overflow. A ratio beyond it is outside every bound.
MAX_LOG_RATIO = 20.0


@dataclass(frozen=True, slots=True, eq=False)
class ImportanceWeights:
    """The weights of one micro-batch, without gradient."""

    values: Tensor
    """[B, T]"""
    bounded: Tensor
    """[B, T] bool: tokens of the mask whose weight was truncated or masked."""


@torch.no_grad()
def importance_weights(
    proximal: Tensor, behaviour: Tensor, mask: Tensor, correction: CorrectionSpec
) -> ImportanceWeights:
    """Weights of tokens [B, T] from their log-probabilities under both policies.

    For `token` the ratio of the token, for `sequence` the product over its completion. `truncated`
    bounds weights by maxWeight (https://fengyao.notion.site/off-policy-rl); `masked` sets weights
    outside [minWeight, maxWeight] to 0 (IcePop, https://arxiv.org/abs/2510.18855). A masked token
    stays in the denominators of the loss, which are counted before any weight is known.
    """
    assert correction.weights is not CorrectionWeights.NONE
    log_ratio = torch.where(mask, proximal - behaviour, 0.0)
    if correction.level is WeightLevel.SEQUENCE:
        log_ratio = log_ratio.sum(dim=-1, keepdim=True).expand_as(mask)
    weights = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    if correction.weights is CorrectionWeights.TRUNCATED:
        bounded = weights > correction.max_weight
        values = weights.clamp(max=correction.max_weight)
    else:
        bounded = (weights > correction.max_weight) | (weights < correction.min_weight)
        values = torch.where(bounded, 0.0, weights)
    return ImportanceWeights(values, bounded & mask)
