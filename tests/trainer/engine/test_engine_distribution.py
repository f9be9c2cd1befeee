"""What the transformers engine draws from, and with which randomness.

Aspects: its log-probabilities are the trainer's; frequencies; seeds and company; greedy
completions.
"""

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from support.engines import ask, importance_ratios, ragged_requests
from unit.rollout.tiny_models import EOS, chain_model, request, tiny_model

SAMPLINGS = [
    {"temperature": 1.0},
    {"temperature": 0.6},
    {"top_k": 5},
    {"top_p": 0.9},
    {"temperature": 0.7, "top_k": 20, "top_p": 0.8},
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
async def test_the_importance_ratio_is_one_with_equal_weights(start, tied, sampling):
    model = tiny_model(tied)
    engine = await start(model)
    requests = ragged_requests(max_new_tokens=24, **sampling)
    ratios = importance_ratios(model, requests, await ask(engine, requests))
    assert len(ratios) > 200
    assert np.abs(ratios - 1).max() < 1e-5


async def test_the_ratio_stays_near_one_in_bfloat16(start):
    model = tiny_model().to(torch.bfloat16)
    engine = await start(model, dtype="bfloat16")
    requests = ragged_requests(max_new_tokens=24)
    ratios = importance_ratios(model, requests, await ask(engine, requests))
    assert abs(ratios.mean() - 1) < 0.01
    assert np.abs(ratios - 1).max() < 0.3


async def test_the_models_own_generation_defaults_do_not_bend_the_distribution(start):
    model = tiny_model()
    hidden = GenerationConfig(do_sample=True, top_k=2, temperature=0.3, repetition_penalty=1.5)
    engine = await start(model, config=hidden)
    requests = ragged_requests(max_new_tokens=24)
    ratios = importance_ratios(model, requests, await ask(engine, requests))
    assert np.abs(ratios - 1).max() < 1e-5


async def test_completions_depend_on_the_seed_and_not_on_the_company(start):
    # About every fifth token ends a completion here, so rows leave the batch all the time.
    engine = await start(chain_model({}, sharpness=0.3))
    requests = ragged_requests(max_new_tokens=40)
    together = await ask(engine, requests)
    assert len({len(c.token_ids) for rollout in together for c in rollout.completions}) > 5
    alone = [await engine.generate(r) for r in reversed(requests)]
    for one, other in zip(together, reversed(alone), strict=True):
        for a, b in zip(one.completions, other.completions, strict=True):
            assert a.token_ids.tolist() == b.token_ids.tolist()
            np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)


async def test_tokens_come_as_often_as_the_model_says(start):
    model, draws = tiny_model(), 20_000
    engine = await start(model)
    asked = request(samples=draws, max_new_tokens=1, temperature=0.8)
    with torch.no_grad():
        logits = model(torch.tensor(asked.prompt_ids.tolist())[None]).logits[0, -1]
    expected = draws * (logits.double() / 0.8).softmax(dim=-1).numpy()
    completions = (await engine.generate(asked)).completions
    counts = np.bincount([c.token_ids[0] for c in completions], minlength=len(expected))
    frequent = expected >= 5
    chi_square = ((counts - expected)[frequent] ** 2 / expected[frequent]).sum()
    freedom = frequent.sum() - 1
    assert chi_square < freedom + 4 * np.sqrt(2 * freedom)


async def test_another_seed_gives_other_completions_and_so_does_each_sample(start):
    engine = await start(tiny_model())
    rollouts = await ask(engine, [request(samples=4, seed=s, max_new_tokens=16) for s in (1, 2)])
    texts = [c.text for rollout in rollouts for c in rollout.completions]
    assert len(set(texts)) == 8


async def test_greedy_completions_are_those_of_transformers_with_certainty(start):
    model = tiny_model()
    engine = await start(model)
    requests = ragged_requests(samples=2, temperature=0.0, max_new_tokens=20)
    for r, rollout in zip(requests, await ask(engine, requests), strict=True):
        ids = torch.tensor(r.prompt_ids.tolist())[None]
        expected = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, pad_token_id=EOS
        )[0, ids.shape[1] :]
        for completion in rollout.completions:
            assert completion.token_ids.tolist() == expected.tolist()
            assert completion.logprobs.tolist() == [0.0] * len(expected)
