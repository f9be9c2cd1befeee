"""Completions of vLLM producers: log-probabilities after updates, seeds, ends, text, order."""

import numpy as np
import pytest
import torch

from grpo_trainer.messages import FinishReason
from support.producers import ask, trained_logprobs
from unit.rollout.tiny_models import (
    EOS,
    chain_model,
    request,
    text_chain,
    tiny_model,
    token_ids,
)

PROMPTS = ("7*8=", "What is 12+34? ", "a", "Compute (3+4)*5 - 6 / 2 = ")
UPDATES = 20
[EXTRA_EOS] = token_ids("!")


@pytest.fixture(scope="module", params=[False, True], ids=["untied", "tied"])
def updated(request, subjects):
    """A subject after many updates, and its model."""
    subject = subjects[request.param]
    for seed in range(UPDATES):
        model = tiny_model(subject.tied, seed)
        version = subject.load(model)
    return subject, model, version


@pytest.fixture
def chained(subjects):
    """A function that answers prompts by a chain model."""

    async def answer(successors, *requests):
        subjects[False].load(chain_model(successors, sharpness=30.0))
        rollouts = await ask(subjects[False].actor, requests)
        return [completion for rollout in rollouts for completion in rollout.completions]

    return answer


def ragged_requests(**sampling):
    return [
        request(prompt, 6, seed=seed, request_id=str(seed), **sampling)
        for seed, prompt in enumerate(PROMPTS)
    ]


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 1.0},
        {"temperature": 0.6},
        {"top_k": 5},
        {"temperature": 0.7, "top_k": 20, "top_p": 0.8},
    ],
    ids=str,
)
async def test_logprobs_are_the_trainers_after_many_updates(updated, sampling):
    subject, model, version = updated
    requests = ragged_requests(max_new_tokens=24, **sampling)
    errors = []
    for asked, rollout in zip(requests, await ask(subject.actor, requests), strict=True):
        assert len(rollout.completions) == 6
        for completion in rollout.completions:
            expected = trained_logprobs(model, asked, completion)
            errors.append(np.abs(completion.logprobs - expected).max())
            assert set(completion.versions) == {version}
    assert max(errors) < 1e-4


async def test_greedy_completions_take_the_likeliest_token_with_certainty(updated):
    subject, model, _ = updated
    [rollout] = await ask(subject.actor, [request(temperature=0.0, max_new_tokens=20)])
    [completion] = rollout.completions
    assert completion.logprobs.tolist() == [0.0] * len(completion.token_ids)
    ids = list(token_ids("1+1="))
    for token in completion.token_ids.tolist():
        assert token == model(torch.tensor(ids)[None]).logits[0, -1].argmax()
        ids.append(token)


async def test_completions_depend_on_the_seed_and_not_on_the_company(updated):
    subject, _, _ = updated
    requests = ragged_requests(max_new_tokens=16)
    together = await ask(subject.actor, requests)
    for asked, rollout in zip(requests, together, strict=True):
        [alone] = await ask(subject.actor, [asked])
        for one, other in zip(alone.completions, rollout.completions, strict=True):
            assert one.token_ids.tolist() == other.token_ids.tolist()


async def test_neither_samples_nor_neighbouring_seeds_share_a_completion(updated):
    subject, _, _ = updated
    seeds = [request(samples=4, seed=s, request_id=str(s), max_new_tokens=16) for s in (1, 2)]
    rollouts = await ask(subject.actor, seeds)
    assert len({c.text for rollout in rollouts for c in rollout.completions}) == 8


@pytest.mark.parametrize("end", [EOS, EXTRA_EOS], ids=["tokenizer's", "generation config's"])
async def test_every_end_of_sequence_token_stops_a_completion_and_stays_in_it(chained, end):
    [completion] = await chained(text_chain("=ab", end), request())
    assert completion.token_ids.tolist() == [*token_ids("ab"), end]
    assert completion.text == ("ab" if end == EOS else "ab!")
    assert completion.finish_reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("limit", "reason"), [(2, FinishReason.LENGTH), (3, FinishReason.STOP), (4, FinishReason.STOP)]
)
async def test_an_end_on_the_last_allowed_token_is_no_truncation(chained, limit, reason):
    [completion] = await chained(text_chain("=ab"), request(max_new_tokens=limit))
    assert completion.token_ids.tolist() == [*token_ids("ab"), EOS][:limit]
    assert completion.finish_reason is reason


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ("bcd", "abcd"),
        ("</answer>", "abcd</answer>"),
        ("d</answer>", "abcd</answer>"),
        # The token that completes the string says more than the string.
        ("d</ans", "abcd</answer>"),
    ],
)
async def test_a_stop_string_ends_the_completion_and_stays_in_its_text(chained, stop, text):
    asked = request(stop_strings=("zz", stop))
    [completion] = await chained(text_chain("=abcd</answer>ef"), asked)
    assert completion.token_ids.tolist() == token_ids(text)
    assert completion.text == text
    assert len(completion.logprobs) == len(completion.versions) == len(completion.token_ids)
    assert completion.finish_reason is FinishReason.STOP


async def test_a_stop_token_ends_the_completion_and_belongs_to_it(chained):
    [token] = token_ids("c")
    [completion] = await chained(text_chain("=abcdef"), request(stop_token_ids=(token,)))
    assert completion.token_ids.tolist() == token_ids("abc")
    assert completion.finish_reason is FinishReason.STOP


async def test_a_stop_string_on_the_last_allowed_token_is_no_truncation(chained):
    asked = request(stop_strings=("bc",), max_new_tokens=3)
    [completion] = await chained(text_chain("=abcdef"), asked)
    assert completion.text == "abc"
    assert completion.finish_reason is FinishReason.STOP


async def test_a_stop_string_in_the_prompt_stops_nothing(chained):
    [completion] = await chained(text_chain("=ab"), request("bb=", stop_strings=("b=", "=a")))
    assert completion.text == "ab"
