"""Each preset's advantage, loss, KL and aggregation equal verl's on random batches with masks,
gradients included."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from verl.trainer.ppo.core_algos import (
    agg_loss,
    compute_grpo_outcome_advantage,
    compute_reinforce_plus_plus_baseline_outcome_advantage,
    compute_rloo_outcome_advantage,
    get_policy_loss_fn,
    kl_penalty,
)
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights
from verl.workers.config import ActorConfig

from grpo_trainer.algorithm.advantage import group_advantages, normalize_over_batch
from grpo_trainer.algorithm.loss import LossBatch, policy_loss
from grpo_trainer.algorithm.totals import Denominators
from grpo_trainer.spec import (
    Advantage,
    AlgorithmName,
    CorrectionSpec,
    CorrectionWeights,
    GRPOJobSpec,
    ImportanceRatio,
    KlForm,
    LossAggregation,
    LossForm,
    WeightLevel,
    resolve_algorithm,
)
from unit.algorithm.builders import algorithm

HORIZON = 12
MODES = {
    LossAggregation.SAMPLE: "seq-mean-token-mean",
    LossAggregation.TOKEN: "token-mean",
    LossAggregation.CONSTANT: "seq-mean-token-sum-norm",
}
LOSSES = {
    (ImportanceRatio.TOKEN, LossForm.CLIPPED): "vanilla",
    (ImportanceRatio.SEQUENCE, LossForm.CLIPPED): "gspo",
    (ImportanceRatio.TOKEN, LossForm.WEIGHTED): "cispo",
}
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
        proximal_logprobs=old + torch.randn(8, 12, generator=generator, dtype=torch.float64) * 0.5,
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
                batch.proximal_logprobs,
            ),
            options,
            denominators,
        )[0]

    return with_gradient(batch, loss)


def verls_weights(batch, correction):
    """None where there is no correction."""
    if correction.weights is CorrectionWeights.NONE:
        return None
    threshold = correction.max_weight
    if correction.weights is CorrectionWeights.MASKED:
        threshold = f"{correction.min_weight}_{correction.max_weight}"
    weights, _ = compute_rollout_correction_weights(
        batch.proximal_logprobs - batch.old_logprobs,
        batch.mask.double(),
        rollout_is=correction.level.value,
        rollout_is_threshold=threshold,
    )
    return weights


def verls(batch, options):
    mode, mask = MODES[options.loss_aggregation], batch.mask.double()
    policy_loss_of = get_policy_loss_fn(LOSSES[options.importance_ratio, options.loss_form])
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=8,
        ppo_micro_batch_size_per_gpu=8,
        clip_ratio_low=options.clip_low,
        clip_ratio_high=options.clip_high,
        clip_ratio_c=options.importance_sampling_cap,
        global_batch_info={"loss_scale_factor": HORIZON},
    )

    def loss(logprobs):
        advantages = batch.advantages[:, None].expand_as(mask)
        weights = verls_weights(batch, options.correction)
        old = batch.old_logprobs if weights is None else batch.proximal_logprobs
        policy, _ = policy_loss_of(old, logprobs, advantages, mask, mode, config, weights)
        kl = kl_penalty(logprobs, batch.reference_logprobs, str(options.kl_form))
        return policy + options.kl_coefficient * agg_loss(kl, mask, mode, loss_scale_factor=HORIZON)

    return with_gradient(batch, loss)


def assert_equal(options, *, empty_row):
    for seed in SEEDS:
        batch = random_batch(seed, empty_row=empty_row)
        # verl adds 1e-8 to a sample's length.
        torch.testing.assert_close(
            ours(batch, options), verls(batch, options), rtol=1e-6, atol=1e-9
        )


@pytest.mark.parametrize("name", AlgorithmName)
@pytest.mark.parametrize("empty_row", [False, True])
@pytest.mark.parametrize("kl_coefficient", [None, 0.05])
def test_loss_and_gradient_of_each_preset_are_verls(name, empty_row, kl_coefficient):
    spec = {
        "algorithm": {"name": name, "klCoefficient": kl_coefficient},
        "sampling": {"maxNewTokens": HORIZON},
    }
    options = resolve_algorithm(GRPOJobSpec.model_validate(spec))
    assert_equal(options, empty_row=empty_row)


@pytest.mark.parametrize("form", LOSSES, ids="-".join)
@pytest.mark.parametrize("weights", [CorrectionWeights.TRUNCATED, CorrectionWeights.MASKED])
@pytest.mark.parametrize("level", WeightLevel)
@pytest.mark.parametrize("kl_coefficient", [0.0, 0.05])
def test_every_correction_is_verls_decoupled_loss(form, weights, level, kl_coefficient):
    ratio, loss = form
    # Some of a batch's weights are within the bounds, without which verl's statistics fail.
    bound = 1.5 if level is WeightLevel.TOKEN else 20.0
    correction = CorrectionSpec(
        weights=weights, level=level, max_weight=bound, min_weight=1 / bound
    )
    options = algorithm(
        importance_ratio=ratio,
        loss_form=loss,
        correction=correction,
        kl_coefficient=kl_coefficient,
        max_new_tokens=HORIZON,
    )
    assert_equal(options, empty_row=True)


@pytest.mark.parametrize("form", LOSSES, ids="-".join)
@pytest.mark.parametrize("aggregation", LossAggregation)
@pytest.mark.parametrize("kl_form", KlForm)
def test_every_combination_of_form_aggregation_and_kl_is_verls(form, aggregation, kl_form):
    ratio, loss_form = form
    options = algorithm(
        importance_ratio=ratio,
        loss_form=loss_form,
        loss_aggregation=aggregation,
        max_new_tokens=HORIZON,
        kl_coefficient=0.05,
        kl_form=kl_form,
        clip_low=0.2,
        clip_high=0.28,
    )
    assert_equal(options, empty_row=True)


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
        max_new_tokens=HORIZON,
    )
    assert_equal(options, empty_row=empty_row)


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


def verl_advantages(form, rewards, lengths, index):
    """Of each sample, from its rewards at the last token."""
    mask = torch.arange(HORIZON) < torch.from_numpy(lengths)[:, None]
    at_end = torch.zeros(len(rewards), HORIZON, dtype=torch.float64)
    at_end[:, 0] = torch.from_numpy(rewards)
    options = {"epsilon": 1e-4}
    match form:
        case Advantage.GROUP_NORMALIZED:
            function = compute_grpo_outcome_advantage
        case Advantage.GROUP_CENTERED:
            function = compute_grpo_outcome_advantage
            options = {"norm_adv_by_std_in_grpo": False}
        case Advantage.LEAVE_ONE_OUT:
            function = compute_rloo_outcome_advantage
        case Advantage.BATCH_NORMALIZED:
            function = compute_reinforce_plus_plus_baseline_outcome_advantage
    advantages, _ = function(at_end, mask.double(), index, **options)
    return advantages[:, 0].numpy()


@pytest.mark.parametrize("form", Advantage)
@pytest.mark.parametrize("seed", SEEDS)
def test_advantages_are_verls(form, seed):
    rng = np.random.default_rng(seed)
    groups = [rng.choice([0.0, 0.5, 1.0, 10.0], size=rng.integers(2, 9)) for _ in range(4)]
    lengths = [rng.integers(1, HORIZON + 1, size=len(group)) for group in groups]
    index = np.concatenate([np.full(len(g), i) for i, g in enumerate(groups)])
    expected = verl_advantages(form, np.concatenate(groups), np.concatenate(lengths), index)
    found = [group_advantages(g.tolist(), form) for g in groups]
    if form is Advantage.BATCH_NORMALIZED:
        found = normalize_over_batch(found, lengths)
    advantages = np.concatenate([group.advantages for group in found])
    assert advantages == pytest.approx(expected, rel=1e-6, abs=1e-6)
