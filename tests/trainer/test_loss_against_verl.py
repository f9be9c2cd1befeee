"""Advantage, loss, KL and aggregation agree with verl's on random batches, gradients included."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import (
    agg_loss,
    compute_grpo_outcome_advantage,
    compute_policy_loss_vanilla,
    kl_penalty,
)

from grpo_trainer.algorithm.advantage import group_advantages
from grpo_trainer.algorithm.loss import LossBatch, policy_loss
from grpo_trainer.algorithm.totals import Denominators
from grpo_trainer.spec import LossAggregation
from unit.algorithm.builders import algorithm

MODES = {LossAggregation.SAMPLE: "seq-mean-token-mean", LossAggregation.TOKEN: "token-mean"}
SEEDS = range(20)


def random_batch(seed, *, empty_row):
    """8 samples of up to 12 tokens; ratios between about 1/8 and 8, so that every bound is met."""
    generator = torch.Generator().manual_seed(seed)
    old = -torch.rand(8, 12, generator=generator, dtype=torch.float64) * 5
    lengths = torch.randint(1, 13, (8, 1), generator=generator)
    mask = torch.arange(12) < lengths
    mask[3, 0], mask[5] = False, mask[5] & (not empty_row)
    return LossBatch(
        logprobs=old + torch.randn(8, 12, generator=generator, dtype=torch.float64) * 0.7,
        old_logprobs=old,
        advantages=torch.randn(8, generator=generator, dtype=torch.float64),
        mask=mask,
        entropy=torch.rand(8, 12, generator=generator),
        reference_logprobs=old + torch.randn(8, 12, generator=generator, dtype=torch.float64) * 0.3,
    )


def with_gradient(batch, function):
    """Value of function(log-probabilities) and its gradient."""
    logprobs = batch.logprobs.clone().requires_grad_()
    value = function(logprobs)
    value.backward()
    return value.detach(), logprobs.grad


def ours(batch, options):
    counted = int(batch.mask.any(dim=1).sum())
    denominators = Denominators(samples=counted, tokens=int(batch.mask.sum()))

    def loss(logprobs):
        return policy_loss(
            LossBatch(
                logprobs,
                batch.old_logprobs,
                batch.advantages,
                batch.mask,
                batch.entropy,
                batch.reference_logprobs,
            ),
            options,
            denominators,
        )[0]

    return with_gradient(batch, loss)


def verls(batch, options):
    mode, mask = MODES[options.loss_aggregation], batch.mask.double()
    config = OmegaConf.create(
        {
            "clip_ratio": options.clip_low,
            "clip_ratio_low": options.clip_low,
            "clip_ratio_high": options.clip_high,
            "clip_ratio_c": options.importance_sampling_cap,
            "global_batch_info": {},
        }
    )

    def loss(logprobs):
        advantages = batch.advantages[:, None].expand_as(mask)
        policy, _ = compute_policy_loss_vanilla(
            batch.old_logprobs, logprobs, advantages, mask, mode, config
        )
        k3 = kl_penalty(logprobs, batch.reference_logprobs, "k3")
        return policy + options.kl_coefficient * agg_loss(k3, mask, mode)

    return with_gradient(batch, loss)


@pytest.mark.parametrize("aggregation", LossAggregation)
@pytest.mark.parametrize("empty_row", [False, True])
@pytest.mark.parametrize("kl_coefficient", [0.0, 0.05])
@pytest.mark.parametrize("cap", [1.1, 2.0, 1e6])
def test_loss_and_gradient_are_verls(aggregation, empty_row, kl_coefficient, cap):
    options = algorithm(
        loss_aggregation=aggregation,
        kl_coefficient=kl_coefficient,
        importance_sampling_cap=cap,
        clip_low=0.2,
        clip_high=0.28,
    )
    for seed in SEEDS:
        batch = random_batch(seed, empty_row=empty_row)
        # verl adds 1e-8 to a sample's length.
        torch.testing.assert_close(
            ours(batch, options), verls(batch, options), rtol=1e-6, atol=1e-9
        )


def test_the_random_batches_meet_every_bound():
    options = algorithm(clip_low=0.2, clip_high=0.28, importance_sampling_cap=2.0)
    met = set()
    for seed in SEEDS:
        batch = random_batch(seed, empty_row=False)
        ratio = (batch.logprobs - batch.old_logprobs).exp()[batch.mask]
        sign = batch.advantages[:, None].expand_as(batch.mask)[batch.mask].sign()
        edges = [0.0, 1 - options.clip_low, 1 + options.clip_high, 2.0, float("inf")]
        for region, (low, high) in enumerate(pairwise(edges)):
            met |= {(region, int(s)) for s in sign[(ratio > low) & (ratio < high)]}
    assert met == {(region, sign) for region in range(4) for sign in (-1, 1)}


@pytest.mark.parametrize("seed", SEEDS)
def test_advantages_are_verls(seed):
    rng = np.random.default_rng(seed)
    groups = [rng.choice([0.0, 0.5, 1.0, 10.0], size=rng.integers(2, 9)) for _ in range(4)]
    index = np.concatenate([np.full(len(g), i) for i, g in enumerate(groups)])
    rewards = torch.from_numpy(np.concatenate(groups))
    expected, _ = compute_grpo_outcome_advantage(
        rewards[:, None].clone(), torch.ones(len(rewards), 1), index, epsilon=1e-4
    )
    found = np.concatenate([group_advantages(g.tolist()).advantages for g in groups])
    assert found == pytest.approx(expected[:, 0].numpy(), rel=1e-5, abs=1e-5)
