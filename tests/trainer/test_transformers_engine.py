"""The transformers engine: log-probabilities, randomness, ends of replies, weights, callers."""

import asyncio
import dataclasses

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from grpo_trainer.algorithm.logprobs import token_logprobs
from grpo_trainer.records import FinishReason
from grpo_trainer.rollout.engine import EngineClosedError, create_engine
from unit.rollout.tiny_models import (
    EOS,
    TOKENIZER,
    bundle,
    chain_model,
    options,
    request,
    save_directory,
    text_chain,
    tiny_model,
    token_ids,
)

PROMPTS = ("7*8=", "What is 12+34? ", "a", "Compute (3+4)*5 - 6 / 2 = ")
SAMPLINGS = [
    {"temperature": 1.0},
    {"temperature": 0.6},
    {"top_k": 5},
    {"top_p": 0.9},
    {"temperature": 0.7, "top_k": 20, "top_p": 0.8},
]


@pytest.fixture
async def start(tmp_path):
    """A function that starts an engine for a model and loads the weights, unless told not to."""
    engines = []

    async def start_engine(model, *, weights=True, tokenizer=TOKENIZER, config=None, **settings):
        save_directory(model, tmp_path, tokenizer, config)
        engine = create_engine("transformers", options(tmp_path, **settings))
        engines.append(engine)
        if weights:
            await engine.load_weights([bundle(model)])
        return engine

    yield start_engine
    for engine in engines:
        await engine.close()


async def ask(engine, requests):
    return await asyncio.gather(*map(engine.generate, requests))


def ragged_requests(samples=6, **sampling):
    return [
        request(prompt, samples, seed=seed, request_id=str(seed), **sampling)
        for seed, prompt in enumerate(PROMPTS)
    ]


def training_logprobs(model, prompt_ids, completion, sampling):
    """As the trainer has them: prompt and reply in one right-padded row, without a cache."""
    sequence = np.concatenate([prompt_ids, completion.token_ids]).astype(np.int64)
    ids = torch.nn.functional.pad(torch.from_numpy(sequence), (0, 7))[None]
    mask = (torch.arange(ids.shape[1]) < len(sequence)).long()[None]
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask).logits[0]
    predicting = logits[len(prompt_ids) - 1 : len(sequence) - 1]
    return token_logprobs(
        predicting,
        torch.from_numpy(completion.token_ids.astype(np.int64)),
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
    ).logprobs.numpy()


def importance_ratios(model, requests, rollouts):
    return np.concatenate(
        [
            np.exp(training_logprobs(model, r.prompt_ids, c, r.sampling) - c.logprobs)
            for r, rollout in zip(requests, rollouts, strict=True)
            for c in rollout.completions
        ]
    )


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


async def test_replies_depend_on_the_seed_and_not_on_the_company(start):
    # About every fifth token ends a reply here, so rows leave the batch all the time.
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


async def test_another_seed_gives_other_replies_and_so_does_each_sample(start):
    engine = await start(tiny_model())
    rollouts = await ask(engine, [request(samples=4, seed=s, max_new_tokens=16) for s in (1, 2)])
    texts = [c.text for rollout in rollouts for c in rollout.completions]
    assert len(set(texts)) == 8


async def test_greedy_replies_are_those_of_transformers_with_certainty(start):
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


async def test_the_text_is_the_sampled_tokens_without_special_ones(start):
    engine = await start(chain_model(text_chain("=a\\boxed{")))
    [completion] = (await engine.generate(request())).completions
    assert completion.token_ids.tolist() == [*token_ids("a\\boxed{"), EOS]
    assert completion.text == "a\\boxed{"


@pytest.mark.parametrize("place", ["config", "generation config", "list", "tokenizer"])
async def test_every_end_of_sequence_token_stops_a_reply(start, place):
    [end] = token_ids("!")
    model = chain_model(text_chain("=ab", end))
    tokenizer, config = TOKENIZER, None
    if place == "config":
        model.config.eos_token_id = end
    elif place == "tokenizer":
        tokenizer = type(TOKENIZER)(tokenizer_object=TOKENIZER.backend_tokenizer, eos_token="!")
    else:
        config = GenerationConfig(eos_token_id=[EOS, end] if place == "list" else end)
    engine = await start(model, tokenizer=tokenizer, config=config)
    [completion] = (await engine.generate(request())).completions
    assert completion.token_ids.tolist() == token_ids("ab!")
    assert completion.finish_reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("limit", "reason"), [(2, FinishReason.LENGTH), (3, FinishReason.STOP), (4, FinishReason.STOP)]
)
async def test_an_end_on_the_last_allowed_token_is_no_truncation(start, limit, reason):
    engine = await start(chain_model(text_chain("=ab")))
    [completion] = (await engine.generate(request(max_new_tokens=limit))).completions
    assert completion.token_ids.tolist() == [*token_ids("ab"), EOS][:limit]
    assert completion.finish_reason is reason


async def test_a_reply_may_contain_the_padding_token(start):
    padding = TOKENIZER.pad_token_id
    [a, b] = token_ids("ab")
    engine = await start(chain_model({**text_chain("=a"), a: padding, padding: b, b: EOS}))
    [completion] = (await engine.generate(request())).completions
    assert completion.token_ids.tolist() == [a, padding, b, EOS]


async def test_lengths_are_exact_where_padding_and_end_are_one_token(start):
    same = type(TOKENIZER)(
        tokenizer_object=TOKENIZER.backend_tokenizer, eos_token="<eos>", pad_token="<eos>"
    )
    engine = await start(chain_model(text_chain("abcdefgh")), tokenizer=same)
    prompts = ["h", "xa", "xxxe", "xxxxxg"]
    rollouts = await ask(engine, [request(p, samples=3) for p in prompts])
    replies = [[c.token_ids.tolist() for c in rollout.completions] for rollout in rollouts]
    expected = ["", "bcdefgh", "fgh", "h"]
    assert replies == [[[*token_ids(text), EOS]] * 3 for text in expected]


@pytest.mark.parametrize("stop", ["bcd", "</answer>", "d</answer>"])
async def test_a_stop_string_ends_the_reply_and_stays_in_its_text(start, stop):
    engine = await start(chain_model(text_chain("=abcd</answer>ef")))
    [completion] = (await engine.generate(request(stop_strings=("zz", stop)))).completions
    assert completion.text == "abcd</answer>".partition(stop)[0] + stop
    assert completion.finish_reason is FinishReason.STOP


async def test_a_stop_string_in_the_prompt_stops_nothing(start):
    engine = await start(chain_model(text_chain("=ab")))
    asked = request("bb=", stop_strings=("b=", "=a"))
    [completion] = (await engine.generate(asked)).completions
    assert completion.text == "ab"


async def test_requests_with_other_sampling_are_answered_each_their_own_way(start):
    engine = await start(chain_model(text_chain("=abcdefgh")))
    limits = [3, 5, 3, 5, 4]
    rollouts = await ask(
        engine, [request(max_new_tokens=n, samples=n, request_id=str(n)) for n in limits]
    )
    assert [rollout.request_id for rollout in rollouts] == [str(n) for n in limits]
    assert [[len(c.token_ids) for c in r.completions] for r in rollouts] == [
        [n] * n for n in limits
    ]


async def test_every_token_names_the_weights_that_drew_it(start):
    engine = await start(chain_model({}), microbatch=1, weights=False)
    old, new = (chain_model(text_chain(text)) for text in ("=abc", "=xyz"))
    await engine.load_weights([bundle(old, version=3)])
    answers = [asyncio.create_task(engine.generate(request())) for _ in range(6)]
    await answers[0]
    await engine.load_weights([bundle(new, version=4)])
    completions = [rollout.completions[0] for rollout in await asyncio.gather(*answers)]
    assert {(c.text, *c.versions) for c in completions} == {
        ("abc", 3, 3, 3, 3),
        ("xyz", 4, 4, 4, 4),
    }
    assert completions[-1].text == "xyz"
    assert engine.version == 4


async def test_requests_wait_for_the_first_weights(start):
    engine = await start(chain_model(text_chain("=a")), weights=False)
    answer = asyncio.create_task(engine.generate(request()))
    done, _ = await asyncio.wait({answer}, timeout=0.2)
    assert not done and engine.version is None
    await engine.load_weights([bundle(chain_model(text_chain("=a")), version=7)])
    [completion] = (await answer).completions
    assert completion.versions.tolist() == [7, 7]


async def test_pipeline_stages_make_up_one_version(start):
    model = tiny_model()
    engine = await start(model, weights=False)
    first = bundle(model, 5, lambda name: "embed" in name or "layers.0" in name)
    last = bundle(model, 5, lambda name: "embed" not in name and "layers.0" not in name)
    await engine.load_weights([first, last])
    requests = ragged_requests()
    ratios = importance_ratios(model, requests, await ask(engine, requests))
    assert np.abs(ratios - 1).max() < 1e-5


async def test_a_new_version_leaves_the_read_only_bundle_of_the_old_one_alone(start):
    engine = await start(tiny_model(), weights=False)
    old = bundle(tiny_model(), version=0)
    before = old.data.copy()
    await engine.load_weights([old])
    await engine.load_weights([bundle(tiny_model(seed=1), version=1)])
    assert np.array_equal(old.data, before)


@pytest.mark.parametrize("fault", ["missing", "unknown", "wrong shape", "one version"])
async def test_weights_that_do_not_fit_are_refused_whole(start, fault):
    engine = await start(chain_model(text_chain("=abc")))
    bad = bundle(chain_model(text_chain("=xyz")), version=1)
    first, *rest = bad.entries
    bundles = {
        "missing": [dataclasses.replace(bad, entries=tuple(rest))],
        "unknown": [
            dataclasses.replace(
                bad, entries=(*bad.entries, dataclasses.replace(first, name="model.other"))
            )
        ],
        "wrong shape": [
            dataclasses.replace(
                bad, entries=(dataclasses.replace(first, shape=(*first.shape, 1)), *rest)
            )
        ],
        "one version": [bad, dataclasses.replace(bad, version=2)],
    }[fault]
    with pytest.raises(ValueError, match=fault):
        await engine.load_weights(bundles)
    [completion] = (await engine.generate(request())).completions
    assert (completion.text, engine.version) == ("abc", 0)


def unknown_token():
    return dataclasses.replace(request(), prompt_ids=np.array([10**6], np.int32))


async def test_a_failed_microbatch_reaches_its_callers_and_no_others(start):
    engine = await start(chain_model(text_chain("=a")), microbatch=1)
    failed, answered = await asyncio.gather(
        engine.generate(unknown_token()), engine.generate(request()), return_exceptions=True
    )
    assert isinstance(failed, IndexError)
    assert answered.completions[0].text == "a"


async def test_a_request_that_nobody_waits_for_is_not_generated(start):
    engine = await start(chain_model(text_chain("=a")), weights=False)
    given_up = asyncio.create_task(engine.generate(unknown_token()))  # else fails the batch
    kept = asyncio.create_task(engine.generate(request()))
    await asyncio.sleep(0)
    given_up.cancel()
    await engine.load_weights([bundle(chain_model(text_chain("=a")))])
    assert (await kept).completions[0].text == "a"
    assert given_up.cancelled()


async def test_a_closed_engine_fails_what_is_unanswered_and_refuses_the_rest(start):
    engine = await start(chain_model({}), weights=False)
    waiting = asyncio.create_task(engine.generate(request()))
    await asyncio.sleep(0)
    await engine.close()
    with pytest.raises(EngineClosedError):
        await waiting
    with pytest.raises(EngineClosedError):
        await engine.generate(request())


async def test_only_generating_counts_as_busy(start):
    engine = await start(tiny_model())
    assert engine.busy_seconds == 0
    await engine.generate(request())
    busy = engine.busy_seconds
    await engine.load_weights([bundle(tiny_model(), version=1)])
    assert engine.busy_seconds == busy > 0


def test_a_backend_without_an_engine_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"producers\.backend: no engine for 'tpu'"):
        create_engine("tpu", options(tmp_path))
