"""Weights of vLLM producers: in flight and between requests, refusals, waiting, the end."""

import asyncio

import numpy as np
import psutil
import pytest
import ray

from grpo_trainer.rollout.engine import EngineClosedError
from support.endless import LONG, endless_model, long_request, until_busy
from support.producers import SECONDS, ask, collect, load, stream, trained_logprobs
from unit.rollout.tiny_models import bundle, misfits, request


async def load_in_the_middle(subject, old, new):
    """Weights that arrive while a long completion is under way; the completion, and a later one."""
    load(subject.actor, old, version=1)
    rollouts = stream(subject.actor, [long_request()])
    await until_busy(subject.actor)
    load(subject.actor, new, version=2)
    [later] = await ask(subject.actor, [request(request_id="later", seed=5)])
    return (await collect(rollouts))["long"], later


async def test_in_flight_every_token_is_of_the_weights_it_names(subjects):
    old, new = endless_model(seed=1), endless_model(seed=2)
    rollout, later = await load_in_the_middle(subjects[False], old, new)
    for completion in rollout.completions:
        first = int((completion.versions == 1).sum())
        assert 0 < first < LONG
        assert completion.versions.tolist() == [1] * first + [2] * (LONG - first)
        for model, part in ((old, slice(0, first)), (new, slice(first, LONG))):
            expected = trained_logprobs(model, long_request(), completion)[part]
            error = np.abs(completion.logprobs[part] - expected).max()
            assert error < 1e-4
    assert set(later.completions[0].versions) == {2}


async def test_between_requests_a_completion_is_of_one_version(subjects):
    old, new = endless_model(seed=1, tied=True), endless_model(seed=2, tied=True)
    rollout, later = await load_in_the_middle(subjects[True], old, new)
    for completion in rollout.completions:
        assert completion.versions.tolist() == [1] * LONG
        expected = trained_logprobs(old, long_request(), completion)
        assert np.abs(completion.logprobs - expected).max() < 1e-4
    [completion] = later.completions
    assert set(completion.versions) == {2}
    expected = trained_logprobs(new, request(), completion)
    assert np.abs(completion.logprobs - expected).max() < 1e-4


@pytest.mark.parametrize("tied", [False, True], ids=["in flight", "between requests"])
async def test_a_prompt_read_with_old_weights_is_read_again(subjects, tied):
    producer = subjects[tied].actor
    prompt = "1+1=" * 25  # long enough for vLLM's cache of prefixes
    for version, seed in enumerate((3, 4)):
        model = endless_model(seed, tied)
        load(producer, model, version)
        asked = request(prompt, max_new_tokens=4)
        [rollout] = await ask(producer, [asked])
        [completion] = rollout.completions
        expected = trained_logprobs(model, asked, completion)
        assert np.abs(completion.logprobs - expected).max() < 1e-4


@pytest.mark.parametrize("tied", [False, True], ids=["in flight", "between requests"])
async def test_weights_that_do_not_fit_are_refused_whole(subjects, tied):
    producer, good = subjects[tied].actor, endless_model(6, tied)
    load(producer, good, version=8)
    for fault, bundles in misfits(bundle(good, version=9)).items():
        with pytest.raises(ValueError, match=fault):
            ray.get(producer.load_weights.remote([ray.put(b) for b in bundles]), timeout=SECONDS)
    asked = request(max_new_tokens=8)
    [rollout] = await ask(producer, [asked])
    [completion] = rollout.completions
    assert set(completion.versions) == {8}
    expected = trained_logprobs(good, asked, completion)
    assert np.abs(completion.logprobs - expected).max() < 1e-4


async def test_only_generating_counts_as_busy(subjects):
    producer = subjects[False].actor
    load(producer, endless_model(), version=0)
    await ask(producer, [long_request()])
    busy = (await producer.stats.remote()).busy_seconds
    load(producer, endless_model(), version=1)
    await asyncio.sleep(0.1)
    assert (await producer.stats.remote()).busy_seconds == busy > 0


def processes(producer):
    info = ray.get(producer.ready.remote(), timeout=SECONDS)
    actor = psutil.Process(info.pid)
    return actor, actor.children(recursive=True)


async def test_requests_wait_for_the_first_weights_and_fail_when_the_producer_ends(start):
    producer = start()
    waiting = stream(producer, [request(request_id="early")])
    model = endless_model()
    assert (await producer.stats.remote()).version is None
    # Two pipeline stages make up the first version.
    stages = [
        ray.put(bundle(model, 5, lambda name: "embed" in name)),
        ray.put(bundle(model, 5, lambda name: "embed" not in name)),
    ]
    ray.get(producer.load_weights.remote(stages), timeout=SECONDS)
    rollout = (await collect(waiting))["early"]
    assert set(rollout.completions[0].versions) == {5}

    actor, children = processes(producer)
    assert children
    unanswered = stream(producer, [long_request()])
    await until_busy(producer)
    ray.get(producer.shutdown.remote(), timeout=SECONDS)
    with pytest.raises(EngineClosedError):
        await collect(unanswered)
    _, alive = psutil.wait_procs(children, timeout=20)
    # Python's own helper, which ends with the actor.
    assert all("resource_tracker" in " ".join(process.cmdline()) for process in alive)
    ray.kill(producer)
    _, alive = psutil.wait_procs([actor, *alive], timeout=20)
    assert not alive


async def test_a_killed_producer_leaves_no_process(start):
    producer = start()
    load(producer, endless_model(), version=0)
    actor, children = processes(producer)
    assert children
    actor.kill()
    _, alive = psutil.wait_procs([actor, *children], timeout=20)
    assert not alive
