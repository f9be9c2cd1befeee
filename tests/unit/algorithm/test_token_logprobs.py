"""Log-probabilities of sampled tokens: the sampling distribution, chunks, entropy, memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd.graph import saved_tensors_hooks
from transformers.generation.logits_process import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from grpo_trainer.algorithm.logprobs import (
    restrict_support,
    sampling_distribution,
    token_logprobs,
)

TOP_K = st.one_of(st.none(), st.integers(1, 40))
TOP_P = st.one_of(st.just(1.0), st.floats(0.01, 0.999))
RESTRICTIONS = [(None, 1.0), (5, 1.0), (None, 0.8), (6, 0.7)]


def random_logits(seed, rows=6, vocabulary=30, spread=3.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, vocabulary, generator=generator) * spread


def random_targets(seed, logits):
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randint(logits.shape[1], (len(logits),), generator=generator)


@settings(deadline=None)
@given(st.integers(0, 10_000), TOP_K, TOP_P)
def test_the_support_is_that_of_transformers_warpers(seed, top_k, top_p):
    logits = random_logits(seed)
    expected = logits
    if top_k is not None:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p < 1:
        expected = TopPLogitsWarper(top_p)(None, expected)
    assert torch.equal(restrict_support(logits, top_k, top_p), expected)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.floats(0.2, 2.0), TOP_K, TOP_P)
def test_the_distribution_is_that_of_transformers_processors(seed, temperature, top_k, top_p):
    logits = random_logits(seed)
    expected = TemperatureLogitsWarper(temperature)(None, logits)
    if top_k is not None:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p < 1:
        expected = TopPLogitsWarper(top_p)(None, expected)
    got = sampling_distribution(logits, temperature, top_k, top_p)
    torch.testing.assert_close(got, expected.log_softmax(-1))


def test_tokens_that_tie_with_the_kth_stay():
    logits = torch.tensor([[3.0, 1.0, 1.0, 0.0]])
    assert restrict_support(logits, 2, 1.0).isfinite().tolist() == [[True, True, True, False]]


def test_the_most_likely_token_stays_in_the_smallest_nucleus():
    logits = torch.tensor([[0.0, 0.1, 0.0]])
    assert restrict_support(logits, None, 1e-12).isfinite().tolist() == [[False, True, False]]


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), TOP_P)
def test_kept_tokens_stay_and_change_no_other(seed, top_k, top_p):
    logits = random_logits(seed)
    keep = random_targets(seed, logits)
    with_keep = restrict_support(logits, top_k, top_p, keep)
    without = restrict_support(logits, top_k, top_p)
    rows = torch.arange(len(logits))
    assert torch.equal(with_keep[rows, keep], logits[rows, keep])
    others = torch.ones_like(logits, dtype=torch.bool).scatter(1, keep[:, None], False)
    assert torch.equal(with_keep[others], without[others])


def test_temperature_0_puts_all_mass_on_the_first_of_the_most_likely():
    logits = torch.tensor([[1.0, 5.0, 5.0]], dtype=torch.bfloat16)
    assert sampling_distribution(logits, 0.0, None, 1.0).exp().tolist() == [[0.0, 1.0, 0.0]]


@pytest.mark.parametrize(("top_k", "top_p"), RESTRICTIONS)
def test_a_sampled_token_has_the_same_logprob_in_training(top_k, top_p):
    logits = random_logits(3, rows=50).bfloat16()
    sampled_from = sampling_distribution(logits, 0.6, top_k, top_p)
    sampled = torch.multinomial(
        sampled_from.exp(), 1, generator=torch.Generator().manual_seed(0)
    ).squeeze(1)
    trained = token_logprobs(logits, sampled, temperature=0.6, top_k=top_k, top_p=top_p, chunk=7)
    ratio = (trained.logprobs - sampled_from[torch.arange(50), sampled]).exp()
    assert torch.equal(ratio, torch.ones(50))


@settings(deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(RESTRICTIONS), st.integers(1, 7))
def test_chunks_change_neither_value_nor_gradient(seed, restriction, chunk):
    top_k, top_p = restriction
    targets = random_targets(seed, random_logits(seed))
    weights = torch.linspace(-1, 1, len(targets))
    found = []
    for size in (chunk, 1000):
        logits = random_logits(seed).requires_grad_()
        result = token_logprobs(
            logits, targets, temperature=0.7, top_k=top_k, top_p=top_p, chunk=size
        )
        (result.logprobs * weights).sum().backward()
        found.append((result.logprobs.detach(), result.entropy, logits.grad))
    torch.testing.assert_close(found[0], found[1])


def test_a_token_outside_the_nucleus_has_a_finite_logprob_and_gradient():
    logits = torch.tensor([[5.0, 0.0, -5.0]]).requires_grad_()
    result = token_logprobs(logits, torch.tensor([2]), temperature=1.0, top_k=1, top_p=0.5)
    result.logprobs.sum().backward()
    assert result.logprobs.tolist() == pytest.approx([-10.0], abs=1e-3)
    assert logits.grad.isfinite().all()
    assert logits.grad[0, 1] == 0


def test_logprobs_of_bfloat16_logits_are_computed_in_fp32():
    logits = random_logits(1, vocabulary=1000).bfloat16()
    targets = random_targets(1, logits)
    result = token_logprobs(logits, targets, temperature=1.0, top_k=None, top_p=1.0)
    exact = logits.double().log_softmax(-1)[torch.arange(len(targets)), targets]
    assert result.logprobs.dtype == result.entropy.dtype == torch.float32
    torch.testing.assert_close(result.logprobs.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("top_k", "top_p"), RESTRICTIONS)
def test_entropy_is_that_of_the_sampling_distribution(top_k, top_p):
    logits = random_logits(5).requires_grad_()
    on_support = token_logprobs(
        logits, logits.argmax(-1), temperature=0.7, top_k=top_k, top_p=top_p
    ).entropy
    expected = torch.distributions.Categorical(
        logits=sampling_distribution(logits.detach(), 0.7, top_k, top_p)
    ).entropy()
    torch.testing.assert_close(on_support, expected)
    assert not on_support.requires_grad


def test_entropy_of_a_uniform_distribution_is_the_log_of_its_size():
    result = token_logprobs(
        torch.zeros(2, 8), torch.tensor([0, 7]), temperature=1.0, top_k=None, top_p=1.0
    )
    assert result.entropy.tolist() == pytest.approx([2.0794415, 2.0794415])


def test_the_graph_of_several_chunks_contains_no_fp32_copy_of_the_logits():
    logits = random_logits(2, rows=64).bfloat16().requires_grad_()
    held = []

    def remember(tensor):
        held.append((tensor.dtype, tensor.numel()))
        return tensor

    with saved_tensors_hooks(remember, lambda tensor: tensor):
        token_logprobs(
            logits,
            random_targets(2, logits),
            temperature=0.7,
            top_k=None,
            top_p=0.9,
            chunk=8,
        )
    assert not [n for dtype, n in held if dtype == torch.float32 and n >= 8 * logits.shape[1]]


@pytest.mark.parametrize(("top_k", "top_p"), RESTRICTIONS)
def test_no_tokens_give_empty_results_that_can_be_differentiated(top_k, top_p):
    logits = torch.zeros(0, 8, requires_grad=True)
    result = token_logprobs(
        logits, torch.zeros(0, dtype=torch.long), temperature=1.0, top_k=top_k, top_p=top_p
    )
    result.logprobs.sum().backward()
    assert result.logprobs.shape == result.entropy.shape == (0,)
    assert logits.grad.shape == (0, 8)


@pytest.mark.parametrize(("top_k", "top_p"), RESTRICTIONS)
@pytest.mark.parametrize("chunk", [4, 1024])
def test_the_gradient_of_the_entropy_is_that_of_its_definition(top_k, top_p, chunk):
    logits = random_logits(3).double().requires_grad_()
    targets = random_targets(3, logits)
    found = token_logprobs(
        logits,
        targets,
        temperature=0.7,
        top_k=top_k,
        top_p=top_p,
        chunk=chunk,
        entropy_gradient=True,
    )
    found.entropy.sum().backward()
    inside = restrict_support(logits.detach().float() / 0.7, top_k, top_p, targets).isfinite()
    own = logits.detach().clone().requires_grad_()
    probabilities = (own / 0.7).masked_fill(~inside, -torch.inf).softmax(-1)
    expected = torch.special.entr(probabilities.where(inside, 1.0)).sum()
    expected.backward()
    torch.testing.assert_close(found.entropy.sum().item(), expected.item(), rtol=1e-5, atol=0)
    torch.testing.assert_close(logits.grad, own.grad, rtol=1e-4, atol=1e-5)


def test_without_an_entropy_bonus_the_entropy_has_no_gradient():
    logits = random_logits(0).requires_grad_()
    found = token_logprobs(
        logits, random_targets(0, logits), temperature=1.0, top_k=None, top_p=1.0
    )
    assert not found.entropy.requires_grad
