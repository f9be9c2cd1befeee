"""Drawing tokens from a distribution: frequencies, impossible tokens, company."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.algorithm.logprobs import sampling_distribution
from grpo_trainer.rollout.decoding import draw

UNIFORM = st.floats(0, 1, exclude_max=True)


def random_logits(seed, tokens=40):
    return 3 * torch.randn(1, tokens, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("top_k", "top_p"), [(None, 1.0), (5, 1.0), (None, 0.8)])
def test_tokens_are_drawn_as_often_as_the_distribution_says(top_k, top_p):
    draws = 200_000
    distribution = sampling_distribution(random_logits(0), 0.7, top_k, top_p)
    uniforms = torch.rand(draws, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    counts = draw(distribution.expand(draws, -1), uniforms).bincount(minlength=40)
    expected = draws * distribution[0].double().exp()
    assert counts[expected == 0].sum() == 0
    frequent = expected >= 5
    chi_square = ((counts - expected)[frequent] ** 2 / expected[frequent]).sum()
    freedom = int(frequent.sum()) - 1
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


@given(st.integers(0, 1000), UNIFORM, st.integers(1, 5))
def test_a_token_outside_the_support_is_never_drawn(seed, uniform, top_k):
    distribution = sampling_distribution(random_logits(seed), 1.0, top_k, 1.0)
    token = draw(distribution, torch.tensor([uniform], dtype=torch.float64))
    assert distribution[0, token.item()] > -torch.inf


@given(st.integers(0, 1000), UNIFORM)
def test_a_greedy_draw_is_the_likeliest_token(seed, uniform):
    logits = random_logits(seed)
    distribution = sampling_distribution(logits, 0.0, None, 1.0)
    assert draw(distribution, torch.tensor([uniform], dtype=torch.float64)) == logits.argmax()


@given(st.integers(0, 1000), st.lists(UNIFORM, min_size=2, max_size=6))
def test_a_row_is_drawn_alike_alone_and_in_company(seed, uniforms):
    distribution = sampling_distribution(random_logits(seed), 1.0, None, 1.0)
    numbers = torch.tensor(uniforms, dtype=torch.float64)
    together = draw(distribution.expand(len(uniforms), -1), numbers)
    alone = [draw(distribution, number[None]).item() for number in numbers]
    assert together.tolist() == alone
