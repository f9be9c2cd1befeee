"""The policy-gradient loss of all presets: importance ratio, form, aggregation and KL term."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grpo_trainer.spec import (
    CorrectionWeights,
    ImportanceRatio,
    KlForm,
    LossAggregation,
    LossForm,
    ResolvedAlgorithm,
)

from .correction import MAX_LOG_RATIO, importance_weights
from .totals import Denominators, LossSums


@dataclass(frozen=True, slots=True, eq=False)
class LossBatch:
    """One micro-batch of B samples over T positions. Values outside the mask have no effect."""

    logprobs: Tensor
    """[B, T] of the policy; the only differentiable part."""
    old_logprobs: Tensor
    """[B, T] of the behaviour policy, as its engine reported them."""
    advantages: Tensor
    """[B]"""
    mask: Tensor
    """[B, T] bool: the response tokens that count."""
    entropy: Tensor
    """[B, T] in nats; differentiable when algorithm.entropy_coefficient > 0."""
    reference_logprobs: Tensor | None = None
    """[B, T]; required when algorithm.kl_coefficient > 0."""
    proximal_logprobs: Tensor | None = None
    """[B, T] of the policy at the start of the step; None where it is the policy itself."""


def policy_loss(
    batch: LossBatch, algorithm: ResolvedAlgorithm, denominators: Denominators
) -> tuple[Tensor, LossSums]:
    """This micro-batch's share of the step's loss, a differentiable scalar, with its statistics.

    Per token, with the importance ratio r = exp(logprob - old_logprob), or for `sequence` its
    geometric mean over the completion (GSPO, https://arxiv.org/abs/2507.18071):

        clipped:   -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)
        weighted:  -clip(r, 1 - clip_low, 1 + clip_high) A logprob, the weight without gradient

    plus kl_coefficient times the KL estimate, minus entropy_coefficient times the entropy. With a
    correction the old log-probabilities of r are those of the policy at the start of the step, and
    both forms are multiplied by `importance_weights` (decoupled PPO,
    https://arxiv.org/abs/2110.00641). `clipped` is PPO's form as in GRPO and DAPO
    (https://arxiv.org/abs/2503.14476, equation 8); for A < 0 the ratio of a token is at most
    importance_sampling_cap, the bound of dual-clip PPO (https://arxiv.org/abs/1912.09729).
    `weighted` is CISPO's (https://arxiv.org/abs/2506.13585).

    The denominators are those of the whole step, so the shares of its micro-batches and ranks
    must be summed: where gradients are averaged over ranks, scale the loss by their number.
    """
    assert batch.reference_logprobs is not None or algorithm.kl_coefficient == 0
    advantages = batch.advantages.to(batch.logprobs.dtype)[:, None]
    corrected = algorithm.correction.weights is not CorrectionWeights.NONE
    proximal = batch.old_logprobs
    if corrected:
        own = batch.proximal_logprobs
        proximal = batch.logprobs.detach() if own is None else own
    # A ratio beyond the bound is outside every clip, one below its reciprocal has a negligible
    # gradient; a KL term beyond it is held constant.
    log_ratio = _log_ratio(batch.logprobs, proximal, batch.mask)
    ratio = log_ratio.exp()
    if algorithm.importance_ratio is ImportanceRatio.SEQUENCE:
        ratio = _sequence_log_ratio(batch, log_ratio).exp()
    if algorithm.loss_form is LossForm.CLIPPED:
        bounded = _bounded(ratio, advantages, algorithm)
        losses = -advantages * bounded
    else:
        bounded = ratio.detach().clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high)
        losses = -advantages * bounded * batch.logprobs
    bounds = [bounded > ratio, bounded < ratio, torch.zeros_like(batch.mask)]
    if corrected:
        weights = importance_weights(proximal, batch.old_logprobs, batch.mask, algorithm.correction)
        losses = losses * weights.values
        bounds[2] = weights.bounded
    kl = torch.zeros_like(log_ratio)
    if batch.reference_logprobs is not None:
        to_reference = _log_ratio(batch.logprobs, batch.reference_logprobs, batch.mask)
        kl = _kl(to_reference, algorithm.kl_form)
        losses = losses + algorithm.kl_coefficient * kl
    if algorithm.entropy_coefficient > 0:
        losses = losses - algorithm.entropy_coefficient * batch.entropy
    loss = _aggregate(losses, batch.mask, algorithm, denominators)
    return loss, _sums(batch, loss, kl, bounds)


def _log_ratio(numerator: Tensor, denominator: Tensor, mask: Tensor) -> Tensor:
    """Difference of log-probabilities, 0 outside the mask and within +-MAX_LOG_RATIO."""
    difference = torch.where(mask, numerator - denominator, 0.0)
    return difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _sequence_log_ratio(batch: LossBatch, log_ratio: Tensor) -> Tensor:
    """[B, T] the completion's mean log-ratio, with the gradient of each token's own.

    GSPO-token, equation 14: sg[mean] + logprob - sg[logprob]. Its gradient is that of the sequence
    ratio where all tokens of a completion have the same advantage.
    """
    lengths = batch.mask.sum(dim=-1, keepdim=True).clamp(min=1)
    mean = log_ratio.detach().sum(dim=-1, keepdim=True) / lengths
    own = torch.where(batch.mask, batch.logprobs - batch.logprobs.detach(), 0.0)
    return mean + own


def _bounded(ratio: Tensor, advantages: Tensor, algorithm: ResolvedAlgorithm) -> Tensor:
    """The ratio that multiplies the advantage: the min() over products, written out by sign."""
    per_token = algorithm.importance_ratio is ImportanceRatio.TOKEN
    cap = algorithm.importance_sampling_cap if per_token else None
    negative = ratio.clamp(1 - algorithm.clip_low, cap)
    positive = ratio.clamp(max=1 + algorithm.clip_high)
    return torch.where(advantages < 0, negative, torch.where(advantages > 0, positive, ratio))


def _kl(log_ratio: Tensor, form: KlForm) -> Tensor:
    """KL estimate of x = log(policy / reference) (http://joschu.net/blog/kl-approx.html)."""
    if form is KlForm.K1:
        return log_ratio
    if form is KlForm.K2:
        return log_ratio.square() / 2
    return _k3(-log_ratio)


def _k3(log_ratio: Tensor) -> Tensor:
    return log_ratio.exp() - log_ratio - 1


def _aggregate(
    losses: Tensor, mask: Tensor, algorithm: ResolvedAlgorithm, denominators: Denominators
) -> Tensor:
    # An empty step has an empty mask too: the bounds below keep its loss at 0 with a graph.
    per_sample = torch.where(mask, losses, 0.0).sum(dim=-1)
    samples = max(1, denominators.samples)
    if algorithm.loss_aggregation is LossAggregation.TOKEN:
        return per_sample.sum() / max(1, denominators.tokens)
    if algorithm.loss_aggregation is LossAggregation.CONSTANT:
        return per_sample.sum() / (samples * algorithm.max_new_tokens)
    lengths = mask.sum(dim=-1).clamp(min=1)
    return (per_sample / lengths).sum() / samples


@torch.no_grad()
def _sums(batch: LossBatch, loss: Tensor, kl: Tensor, bounds: Sequence[Tensor]) -> LossSums:
    """`bounds` are the tokens clipped from below, clipped from above, and with a bounded weight."""
    log_ratio = _log_ratio(batch.logprobs, batch.old_logprobs, batch.mask)
    ratio = log_ratio.double().exp()
    per_token = (
        *(batch.mask, kl, batch.entropy, ratio, ratio.square(), log_ratio),
        *(log_ratio.double().square(), _k3(log_ratio.double()), *bounds),
    )
    sums = [torch.where(batch.mask, values, 0).sum(dtype=torch.float64) for values in per_token]
    largest = log_ratio.abs().max().double()
    # One transfer from the device for all of them.
    values = torch.stack([*sums, largest, loss.double()]).tolist()
    tokens, kl_sum, entropy, ratios, squares, logs, log_squares, behaviour = values[:8]
    low, high, weighted, maximum, total = values[8:]
    return LossSums(
        tokens=int(tokens),
        loss=total,
        kl=kl_sum,
        entropy=entropy,
        ratio=ratios,
        ratio_squared=squares,
        log_ratio=logs,
        log_ratio_squared=log_squares,
        max_log_ratio=maximum,
        behaviour_kl=behaviour,
        clipped_low=int(low),
        clipped_high=int(high),
        bounded_weights=int(weighted),
    )
