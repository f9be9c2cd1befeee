"""The loss: closed forms of ratio, clips and cap, the KL term, masks, empty steps, its sums.

Agreement with an independent implementation is in trainer/test_loss_against_verl.py.
"""

import math
import statistics
from dataclasses import replace

import pytest
import torch

from grpo_trainer.algorithm.loss import MAX_LOG_RATIO, LossBatch, policy_loss
from grpo_trainer.algorithm.totals import Denominators, LossSums
from grpo_trainer.spec import CorrectionSpec, CorrectionWeights, LossAggregation, WeightLevel
from unit.algorithm.builders import algorithm

ONE = Denominators(samples=1, tokens=1)


def batch_of(logprobs, old, advantages, mask=None, reference=None, entropy=None):
    old = torch.tensor(old, dtype=logprobs.dtype)
    return LossBatch(
        logprobs=logprobs,
        old_logprobs=old,
        advantages=torch.tensor(advantages),
        mask=torch.ones_like(old, dtype=torch.bool) if mask is None else torch.tensor(mask),
        entropy=torch.zeros_like(old) if entropy is None else torch.tensor(entropy),
        reference_logprobs=None if reference is None else torch.tensor(reference),
    )


def one_token(log_ratio, advantage, **overrides):
    """Loss, gradient and sums of a single token."""
    logprobs = torch.tensor([[log_ratio]], dtype=torch.float64, requires_grad=True)
    options = algorithm(clip_low=0.2, clip_high=0.3, importance_sampling_cap=2.0, **overrides)
    loss, sums = policy_loss(batch_of(logprobs, [[0.0]], [advantage]), options, ONE)
    loss.backward()
    return loss.item(), logprobs.grad.item(), sums


@pytest.mark.parametrize("aggregation", LossAggregation)
def test_on_policy_the_gradient_is_minus_the_advantage(aggregation):
    for advantage in (-1.5, 0.5):
        loss, gradient, sums = one_token(
            0.0, advantage, loss_aggregation=aggregation, max_new_tokens=1
        )
        assert (loss, gradient) == (-advantage, -advantage)
        assert (sums.ratio, sums.clipped_low, sums.clipped_high) == (1.0, 0, 0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "effective", "flat", "low", "high"),
    [
        (1.1, 1.0, 1.1, False, 0, 0),
        (1.5, 1.0, 1.3, True, 0, 1),
        (0.5, 1.0, 0.5, False, 0, 0),
        (0.9, -1.0, 0.9, False, 0, 0),
        (0.5, -1.0, 0.8, True, 1, 0),
        (1.5, -1.0, 1.5, False, 0, 0),
        (3.0, -1.0, 2.0, True, 0, 1),
        (3.0, 0.0, 0.0, True, 0, 0),
    ],
    ids=str,
)
def test_a_ratio_is_bounded_in_the_direction_of_its_advantage(
    ratio, advantage, effective, flat, low, high
):
    loss, gradient, sums = one_token(math.log(ratio), advantage)
    assert loss == pytest.approx(-effective * advantage)
    assert gradient == pytest.approx(0.0 if flat else -ratio * advantage)
    assert sums.ratio == pytest.approx(ratio)
    assert (sums.clipped_low, sums.clipped_high) == (low, high)


@pytest.mark.parametrize("log_ratio", [-1e4, -50.0, 50.0, 1e4])
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_extreme_ratios_stay_finite_and_have_no_gradient(log_ratio, advantage):
    loss, gradient, sums = one_token(log_ratio, advantage)
    assert math.isfinite(loss) and math.isfinite(sums.ratio)
    assert gradient == 0
    assert math.exp(-MAX_LOG_RATIO) <= sums.ratio <= math.exp(MAX_LOG_RATIO)


def test_the_kl_term_is_the_k3_estimate_against_the_reference():
    logprobs = torch.tensor([[-1.0]], dtype=torch.float64, requires_grad=True)
    loss, sums = policy_loss(
        batch_of(logprobs, [[-1.0]], [0.0], reference=[[-1.5]]),
        algorithm(kl_coefficient=0.5),
        ONE,
    )
    loss.backward()
    k3 = math.exp(-0.5) + 0.5 - 1
    assert loss.item() == pytest.approx(0.5 * k3)
    assert sums.kl == pytest.approx(k3)
    assert logprobs.grad.item() == pytest.approx(0.5 * (1 - math.exp(-0.5)))


def test_a_kl_coefficient_without_a_reference_is_refused():
    with pytest.raises(AssertionError):
        policy_loss(batch_of(torch.zeros(1, 1), [[0.0]], [1.0]), algorithm(kl_coefficient=0.1), ONE)


def test_sample_averages_token_means_and_token_averages_tokens():
    mask = [[True, False, False, False], [True, True, True, True]]
    losses = []
    for aggregation in (LossAggregation.SAMPLE, LossAggregation.TOKEN):
        loss, _ = policy_loss(
            batch_of(torch.zeros(2, 4), [[0.0] * 4] * 2, [1.0, 3.0], mask),
            algorithm(loss_aggregation=aggregation),
            Denominators(samples=2, tokens=5),
        )
        losses.append(loss.item())
    assert losses == pytest.approx([-(1 + 3) / 2, -(1 + 4 * 3) / 5])


@pytest.mark.parametrize("aggregation", LossAggregation)
@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), float("-inf"), 1e30])
def test_values_outside_the_mask_have_no_effect(aggregation, garbage):
    def run(filler):
        logprobs = torch.tensor([[-1.0, filler], [filler, filler]], requires_grad=True)
        loss, sums = policy_loss(
            batch_of(
                logprobs,
                [[-1.2, filler], [filler, filler]],
                [1.0, -1.0],
                mask=[[True, False], [False, False]],
                reference=[[-1.1, filler], [filler, filler]],
                entropy=[[0.5, filler], [filler, filler]],
            ),
            algorithm(loss_aggregation=aggregation, kl_coefficient=0.1),
            ONE,
        )
        loss.backward()
        return loss.item(), sums, logprobs.grad.tolist()

    assert run(garbage) == run(0.0)


@pytest.mark.parametrize("aggregation", LossAggregation)
@pytest.mark.parametrize("denominators", [Denominators(0, 0), Denominators(8, 90)], ids=str)
def test_all_masked_is_a_loss_of_0_with_a_gradient_of_0(aggregation, denominators):
    logprobs = torch.full((2, 3), float("nan"), requires_grad=True)
    loss, sums = policy_loss(
        batch_of(logprobs, [[0.0] * 3] * 2, [1.0, -1.0], mask=[[False] * 3] * 2),
        algorithm(loss_aggregation=aggregation),
        denominators,
    )
    loss.backward()
    assert loss.item() == 0.0
    assert logprobs.grad.tolist() == [[0.0] * 3] * 2
    assert sums == LossSums()


def test_sums_add_up_over_micro_batches_and_give_means_per_token():
    logprobs = torch.tensor([[0.0, math.log(1.25)], [math.log(0.5), 0.0]], dtype=torch.float64)
    old, entropy, advantages = [[0.0, 0.0]] * 2, [[1.0, 2.0], [3.0, 4.0]], [2.0, -1.0]
    mask = [[True, True], [True, False]]
    options, denominators = algorithm(), Denominators(samples=2, tokens=3)
    _, whole = policy_loss(
        batch_of(logprobs, old, advantages, mask, entropy=entropy), options, denominators
    )
    parts = [
        policy_loss(
            batch_of(
                logprobs[i : i + 1], old[:1], [advantages[i]], [mask[i]], entropy=[entropy[i]]
            ),
            options,
            denominators,
        )[1]
        for i in range(2)
    ]
    assert sum(parts, LossSums()) == whole
    assert whole.tokens == 3
    assert whole.per_token(whole.entropy) == 2.0
    assert whole.per_token(whole.ratio) == pytest.approx((1 + 1.25 + 0.5) / 3)
    assert (whole.clipped_low, whole.clipped_high) == (1, 1)
    assert LossSums().per_token(0.0) == 0.0


def test_sums_describe_how_far_the_policy_is_from_the_behaviour_policy():
    log_ratios = torch.tensor([[0.5, -1.0], [0.0, 7.0]], dtype=torch.float64)
    mask = [[True, True], [True, False]]
    _, sums = policy_loss(
        batch_of(log_ratios, [[0.0, 0.0]] * 2, [1.0, -1.0], mask),
        algorithm(),
        Denominators(samples=2, tokens=3),
    )
    ratios = [math.exp(0.5), math.exp(-1.0), 1.0]
    assert sums.max_log_ratio == 1.0
    assert sums.log_ratio_std == pytest.approx(statistics.pstdev([0.5, -1.0, 0.0]))
    k3 = [r - 1 - math.log(r) for r in ratios]
    assert sums.per_token(sums.behaviour_kl) == pytest.approx(sum(k3) / 3)
    effective = sum(ratios) ** 2 / sum(r**2 for r in ratios)
    assert sums.effective_sample_share == pytest.approx(effective / 3)
    assert (sums + LossSums(max_log_ratio=3.0)).max_log_ratio == 3.0


def test_on_policy_the_distance_to_the_behaviour_policy_is_zero():
    _, sums = policy_loss(
        batch_of(torch.zeros(2, 2), [[0.0, 0.0]] * 2, [1.0, -1.0]), algorithm(), ONE
    )
    assert (sums.log_ratio_std, sums.max_log_ratio, sums.behaviour_kl) == (0.0, 0.0, 0.0)
    assert sums.effective_sample_share == 1.0
    assert LossSums().effective_sample_share == LossSums().log_ratio_std == 0.0


def test_ratios_that_all_underflow_leave_no_effective_sample() -> None:
    assert LossSums(tokens=3, ratio=0.0, ratio_squared=0.0).effective_sample_share == 0.0


def corrected(log_ratio, **fields):
    """Gradient and sums of two tokens of one completion, the second sampled on-policy."""
    logprobs = torch.tensor([[log_ratio, 0.0]], dtype=torch.float64, requires_grad=True)
    options = algorithm(correction=CorrectionSpec(**fields))
    batch = batch_of(logprobs, [[0.0, 0.0]], [1.0])
    loss, sums = policy_loss(batch, options, Denominators(samples=1, tokens=2))
    loss.backward()
    return (-2 * logprobs.grad[0]).tolist(), sums


@pytest.mark.parametrize(
    ("ratio", "weights", "expected", "bounded"),
    [
        (1.5, CorrectionWeights.TRUNCATED, 1.5, 0),
        (3.0, CorrectionWeights.TRUNCATED, 2.0, 1),
        (0.1, CorrectionWeights.TRUNCATED, 0.1, 0),
        (1.5, CorrectionWeights.MASKED, 1.5, 0),
        (3.0, CorrectionWeights.MASKED, 0.0, 1),
        (0.1, CorrectionWeights.MASKED, 0.0, 1),
    ],
)
def test_a_correction_weights_the_gradient_of_a_token(ratio, weights, expected, bounded):
    gradient, sums = corrected(math.log(ratio), weights=weights)
    assert gradient == pytest.approx([expected, 1.0])
    assert (sums.bounded_weights, sums.clipped_high, sums.clipped_low) == (bounded, 0, 0)
    assert sums.ratio == pytest.approx(ratio + 1)


def test_a_correction_of_sequences_weights_all_tokens_alike():
    fields = {"weights": CorrectionWeights.TRUNCATED, "level": WeightLevel.SEQUENCE}
    gradient, sums = corrected(math.log(1.5), **fields)
    assert gradient == pytest.approx([1.5, 1.5])
    gradient, sums = corrected(math.log(3.0), **fields)
    assert gradient == pytest.approx([2.0, 2.0])
    assert sums.bounded_weights == 2


def test_with_updates_after_the_start_of_a_step_a_correction_clips_against_the_start():
    logprobs = torch.tensor([[math.log(3.0)]], dtype=torch.float64, requires_grad=True)
    batch = replace(
        batch_of(logprobs, [[0.0]], [1.0]),
        proximal_logprobs=torch.tensor([[math.log(1.5)]], dtype=torch.float64),
    )
    options = algorithm(
        clip_high=0.3, correction=CorrectionSpec(weights=CorrectionWeights.TRUNCATED)
    )
    loss, sums = policy_loss(batch, options, ONE)
    assert loss.item() == pytest.approx(-1.5 * 1.3)
    assert (sums.clipped_high, sums.bounded_weights) == (1, 0)


def test_the_entropy_bonus_is_subtracted_like_a_token_s_loss():
    logprobs = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    batch = batch_of(logprobs, [[0.0, 0.0]], [0.0], mask=[[True, False]], entropy=[[0.5, 9.0]])
    loss, sums = policy_loss(batch, algorithm(entropy_coefficient=0.2), ONE)
    assert loss.item() == pytest.approx(-0.2 * 0.5)
    assert sums.entropy == pytest.approx(0.5)
