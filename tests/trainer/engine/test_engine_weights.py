"""The transformers engine over time.

Aspects: weights that change and that do not fit; callers that fail, give up or wait; its busy time;
backends that there are not.
"""

import asyncio
import dataclasses

import numpy as np
import pytest

from grpo_trainer.rollout.engine import EngineClosedError
from grpo_trainer.rollout.factory import create_engine
from support.engines import ask, importance_ratios, ragged_requests
from unit.rollout.tiny_models import (
    bundle,
    chain_model,
    misfits,
    options,
    request,
    text_chain,
    tiny_model,
)


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
    bundles = misfits(bundle(chain_model(text_chain("=xyz")), version=1))[fault]
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
