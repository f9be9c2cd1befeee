"""The clipped policy-gradient loss in DAPO's form; GRPO is its case of equal clips and `sample`."""

from dataclasses import dataclass

import torch
from torch import Tensor

from grpo_trainer.spec import LossAggregation, ResolvedAlgorithm

from .totals import Denominators, LossSums

# exp(20) = 5e8 can be summed in fp32 without overflow. A policy ratio beyond it is past every clip,
# one below its reciprocal has no gradient to speak of; a KL term beyond it is held constant.
MAX_LOG_RATIO = 20.0


@dataclass(frozen=True, slots=True, eq=False)
class LossBatch:
    """One micro-batch of B samples over T positions. What stands outside the mask has no effect."""

    logprobs: Tensor
    """[B, T] of the policy being trained; the only differentiable part."""
    old_logprobs: Tensor
    """[B, T] of the policy that drew the tokens, as its engine reported them."""
    advantages: Tensor
    """[B]"""
    mask: Tensor
    """[B, T] bool: the response tokens that count."""
    entropy: Tensor
    """[B, T] in nats, reported only."""
    reference_logprobs: Tensor | None = None
    """[B, T]; required when algorithm.kl_coefficient > 0."""


def policy_loss(
    batch: LossBatch, algorithm: ResolvedAlgorithm, denominators: Denominators
) -> tuple[Tensor, LossSums]:
    """This micro-batch's share of the step's loss, a differentiable scalar, with its statistics.

    Per token, with r = exp(logprob - old_logprob):

        -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) + kl_coefficient * k3

    (https://arxiv.org/abs/2503.14476, equation 8) where for A < 0 r is no more than
    importance_sampling_cap, the bound of dual-clip PPO (https://arxiv.org/abs/1912.09729).
    Aggregation `sample` averages the samples' token means, `token` averages all tokens.

    The denominators are those of the whole step, so the shares of its micro-batches and ranks
    have to be summed: where gradients are averaged over ranks, scale the loss by their number.
    """
    assert batch.reference_logprobs is not None or algorithm.kl_coefficient == 0
    advantages = batch.advantages.to(batch.logprobs.dtype)[:, None]
    ratio = _log_ratio(batch.logprobs, batch.old_logprobs, batch.mask).exp()
    bounded = _bounded(ratio, advantages, algorithm)
    losses = -advantages * bounded
    k3 = torch.zeros_like(ratio)
    if batch.reference_logprobs is not None:
        k3 = _k3(_log_ratio(batch.reference_logprobs, batch.logprobs, batch.mask))
        losses = losses + algorithm.kl_coefficient * k3
    loss = _aggregate(losses, batch.mask, algorithm.loss_aggregation, denominators)
    return loss, _sums(batch, loss, ratio, bounded, k3)


def _log_ratio(numerator: Tensor, denominator: Tensor, mask: Tensor) -> Tensor:
    """Difference of log-probabilities, 0 outside the mask and bounded to what exp() can bear."""
    difference = torch.where(mask, numerator - denominator, 0.0)
    return difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _bounded(ratio: Tensor, advantages: Tensor, algorithm: ResolvedAlgorithm) -> Tensor:
    """The ratio that multiplies the advantage: the min() over products, written out by sign."""
    punished = ratio.clamp(1 - algorithm.clip_low, algorithm.importance_sampling_cap)
    rewarded = ratio.clamp(max=1 + algorithm.clip_high)
    return torch.where(advantages < 0, punished, torch.where(advantages > 0, rewarded, ratio))


def _k3(log_ratio: Tensor) -> Tensor:
    """KL estimate exp(x) - x - 1, x = log(reference / policy) (http://joschu.net/blog/kl-approx.html)."""
    return log_ratio.exp() - log_ratio - 1


def _aggregate(
    losses: Tensor, mask: Tensor, aggregation: LossAggregation, denominators: Denominators
) -> Tensor:
    # An empty step has an empty mask too: the bounds below keep its loss at 0 with a graph.
    per_sample = torch.where(mask, losses, 0.0).sum(dim=-1)
    if aggregation is LossAggregation.TOKEN:
        return per_sample.sum() / max(1, denominators.tokens)
    lengths = mask.sum(dim=-1).clamp(min=1)
    return (per_sample / lengths).sum() / max(1, denominators.samples)


@torch.no_grad()
def _sums(batch: LossBatch, loss: Tensor, ratio: Tensor, bounded: Tensor, k3: Tensor) -> LossSums:
    per_token = (batch.mask, k3, batch.entropy, ratio, bounded > ratio, bounded < ratio)
    sums = [torch.where(batch.mask, values, 0).sum(dtype=torch.float64) for values in per_token]
    # One transfer from the device for all of them.
    tokens, kl, entropy, ratios, clipped_low, clipped_high, total = torch.stack(
        [*sums, loss.double()]
    ).tolist()
    return LossSums(
        tokens=int(tokens),
        loss=total,
        kl=kl,
        entropy=entropy,
        ratio=ratios,
        clipped_low=int(clipped_low),
        clipped_high=int(clipped_high),
    )
