"""The gradient of a step is one number, however its samples are split over ranks and micro-batches.

A bigram model in float64 goes through batching and loss; the reference walks over the completions
one token at a time, straight from the formula.
"""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_trainer.algorithm.batching import build_step, step_advantages
from grpo_trainer.algorithm.loss import LossBatch, policy_loss
from grpo_trainer.algorithm.totals import LossSums
from grpo_trainer.spec import Advantage, ImportanceRatio, KlForm, LossAggregation, LossForm
from unit.algorithm.builders import PAD, VOCABULARY, algorithm, groups

ALGORITHMS = st.builds(
    algorithm,
    advantage=st.sampled_from(Advantage),
    importance_ratio=st.sampled_from(ImportanceRatio),
    loss_form=st.sampled_from(LossForm),
    loss_aggregation=st.sampled_from(LossAggregation),
    max_new_tokens=st.just(6),
    kl_form=st.sampled_from(KlForm),
    kl_coefficient=st.sampled_from([0.0, 0.1]),
    mask_truncated=st.booleans(),
)
STEPS = st.lists(groups(), max_size=4)


def table(seed):
    """[V, V] logits of the next token."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(VOCABULARY, VOCABULARY, generator=generator, dtype=torch.float64)


def logprobs_of(weights, ids):
    """[B, L] log-probability of each token after the one before it, 0 for the first."""
    table = weights.log_softmax(-1)
    return torch.nn.functional.pad(table[ids[:, :-1], ids[:, 1:]], (1, 0))


def train(scored, options, **split):
    """Gradient and sums of a step."""
    step = build_step(scored, algorithm=options, pad_token_id=PAD, **split)
    weights, reference, sums = table(0).requires_grad_(), table(1), LossSums()
    for batch in (batch for shard in step.shards for batch in shard):
        ids = torch.from_numpy(batch.input_ids)
        logprobs = logprobs_of(weights, ids)
        loss, part = policy_loss(
            LossBatch(
                logprobs=logprobs,
                old_logprobs=torch.from_numpy(batch.old_logprobs),
                advantages=torch.from_numpy(batch.advantages),
                mask=torch.from_numpy(batch.mask),
                entropy=torch.zeros_like(logprobs),
                reference_logprobs=logprobs_of(reference, ids) if options.kl_coefficient else None,
            ),
            options,
            step.denominators,
        )
        loss.backward()
        sums = sums + part
    return weights.grad, sums


def completions_in_the_loss(scored, options):
    """(prompt, completion, advantage) of each."""
    for group, found in zip(scored, step_advantages(scored, options), strict=True):
        for i, completion in enumerate(group.rollout.completions):
            if found.valid[i]:
                yield group.prompt.token_ids.tolist(), completion, float(found.advantages[i])


def kl_estimate(log_ratio, form):
    match form:
        case KlForm.K1:
            return log_ratio
        case KlForm.K2:
            return log_ratio**2 / 2
        case KlForm.K3:
            return (-log_ratio).exp() + log_ratio - 1


def token_loss(logprob, ratio, reference, advantage, options):
    clipped = ratio.clamp(1 - options.clip_low, 1 + options.clip_high)
    if options.loss_form is LossForm.WEIGHTED:
        loss = -clipped.detach() * advantage * logprob
    else:
        loss = torch.max(-ratio * advantage, -clipped * advantage)
        if advantage < 0 and options.importance_ratio is ImportanceRatio.TOKEN:
            loss = torch.min(loss, torch.tensor(-options.importance_sampling_cap * advantage))
    return loss + options.kl_coefficient * kl_estimate(logprob - reference, options.kl_form)


def completion_losses(prompt, completion, advantage, policy, reference, options):
    """The loss of each token with a known log-probability."""
    ids = prompt + completion.token_ids.tolist()
    pairs = list(zip(ids[len(prompt) - 1 :], ids[len(prompt) :], strict=False))
    known = [
        (pair, float(old))
        for pair, old in zip(pairs, completion.logprobs, strict=True)
        if math.isfinite(old)
    ]
    log_ratios = [policy[pair] - old for pair, old in known]
    if options.importance_ratio is ImportanceRatio.SEQUENCE:
        log_ratios = [sum(log_ratios) / len(log_ratios)] * len(log_ratios)
    return [
        token_loss(policy[pair], log_ratio.exp(), reference[pair], advantage, options)
        for (pair, _), log_ratio in zip(known, log_ratios, strict=True)
    ]


def reference_gradient(scored, options):
    weights = table(0).requires_grad_()
    policy, reference = weights.log_softmax(-1), table(1).log_softmax(-1)
    per_sample = [
        completion_losses(*sample, policy, reference, options)
        for sample in completions_in_the_loss(scored, options)
    ]
    if not per_sample:
        return torch.zeros_like(weights)
    match options.loss_aggregation:
        case LossAggregation.SAMPLE:
            loss = sum(sum(losses) / len(losses) for losses in per_sample) / len(per_sample)
        case LossAggregation.TOKEN:
            loss = sum(map(sum, per_sample)) / sum(map(len, per_sample))
        case LossAggregation.CONSTANT:
            loss = sum(map(sum, per_sample)) / options.max_new_tokens / len(per_sample)
    loss.backward()
    return weights.grad


@settings(deadline=None, max_examples=50)
@given(STEPS, ALGORITHMS)
def test_the_gradient_is_that_of_the_formula_per_token(scored, options):
    gradient, _ = train(scored, options, data_parallel=1, microbatch=100)
    torch.testing.assert_close(gradient, reference_gradient(scored, options), rtol=1e-6, atol=1e-9)


@settings(deadline=None, max_examples=50)
@given(
    STEPS,
    ALGORITHMS,
    st.integers(1, 4),
    st.integers(1, 5),
    st.none() | st.integers(1, 40),
    st.integers(1, 3),
)
def test_no_split_changes_gradient_or_sums(scored, options, ranks, microbatch, tokens, multiple_of):
    whole, whole_sums = train(scored, options, data_parallel=1, microbatch=100)
    split, sums = train(
        scored,
        options,
        data_parallel=ranks,
        microbatch=microbatch,
        microbatch_tokens=tokens,
        multiple_of=multiple_of,
    )
    torch.testing.assert_close(split, whole, rtol=1e-9, atol=1e-12)
    assert sums.tokens == whole_sums.tokens
    assert math.isclose(sums.loss, whole_sums.loss, rel_tol=1e-9, abs_tol=1e-12)


@settings(deadline=None, max_examples=50)
@given(STEPS, st.sampled_from(LossAggregation), st.integers(1, 3))
def test_skipping_samples_without_advantage_changes_no_gradient(scored, aggregation, ranks):
    options = algorithm(loss_aggregation=aggregation)
    gradients = [
        train(scored, options, data_parallel=ranks, microbatch=2, skip_zero_advantage=skip)[0]
        for skip in (True, False)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)
