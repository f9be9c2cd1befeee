"""Weights of vLLM producers by broadcast: log-probabilities, in flight, broken off, refused."""

import asyncio

import numpy as np
import pytest
import torch

from support.endless import LONG, endless_model, long_request, until_busy
from support.producers import SECONDS, ask, collect, stream, trained_logprobs
from support.transports import Collective, Remote, writable
from unit.rollout.tiny_models import bundle, request, tiny_model

UPDATES = 20
TIED = pytest.mark.parametrize("tied", [False, True], ids=["untied, in flight", "tied"])


@pytest.fixture
def way():
    return Collective()


def stages(model, version):
    """A version in two pipeline stages."""
    first = bundle(model, version, lambda name: "layers.0" in name)
    last = bundle(model, version, lambda name: "layers.0" not in name)
    return [writable(first), writable(last)]


async def broadcast(way, subject, model, version):
    """Hand a producer the model's weights as it gets them in a run."""
    async with asyncio.timeout(SECONDS):
        await way.deliver([_remote(subject)], [writable(bundle(model, version))])


def _remote(subject):
    if not hasattr(subject, "remote"):
        subject.remote = Remote(subject.actor)
    return subject.remote


async def error(subject, model, asked):
    """Largest difference between the producer's log-probabilities and the model's; versions."""
    [rollout] = await ask(subject.actor, [asked])
    errors = [
        np.abs(c.logprobs - trained_logprobs(model, asked, c)).max() for c in rollout.completions
    ]
    return max(errors), {int(v) for c in rollout.completions for v in c.versions}


@TIED
async def test_logprobs_are_the_trainers_after_many_broadcasts(subjects, way, tied):
    subject = subjects[tied]
    for version in range(UPDATES):
        model = tiny_model(tied, seed=version)
        await broadcast(way, subject, model, version)
    for temperature in (1.0, 0.6):
        asked = request("What is 12+34? ", 6, temperature=temperature, max_new_tokens=24)
        difference, versions = await error(subject, model, asked)
        assert difference < 1e-4
        assert versions == {UPDATES - 1}


async def test_a_broadcast_in_flight_splits_a_completion_between_versions(subjects, way):
    subject = subjects[False]
    old, new = endless_model(seed=1), endless_model(seed=2)
    await broadcast(way, subject, old, 1)
    rollouts = stream(subject.actor, [long_request()])
    await until_busy(subject.actor)
    await broadcast(way, subject, new, 2)
    for completion in (await collect(rollouts))["long"].completions:
        first = int((completion.versions == 1).sum())
        assert 0 < first < LONG
        assert completion.versions.tolist() == [1] * first + [2] * (LONG - first)
        for model, part in ((old, slice(0, first)), (new, slice(first, LONG))):
            expected = trained_logprobs(model, long_request(), completion)[part]
            assert np.abs(completion.logprobs[part] - expected).max() < 1e-4


@TIED
async def test_a_broadcast_that_breaks_off_is_never_drawn_from(subjects, way, tied):
    subject = subjects[tied]
    await way.deliver([_remote(subject)], stages(tiny_model(tied, seed=1), 1))
    receiving = asyncio.ensure_future(_remote(subject).receive_weights(2))
    whole, lost = way.senders
    part, _ = stages(tiny_model(tied, seed=2), 2)
    await asyncio.gather(
        asyncio.to_thread(whole.send, 2, part.entries, torch.from_numpy(part.data)),
        asyncio.to_thread(lost._handshake, 2),
    )
    lost._group.leave()  # its process is gone
    with pytest.raises(RuntimeError, match="weights lost"):
        await asyncio.wait_for(receiving, SECONDS)
    assert (await subject.actor.stats.remote()).version is None
    waiting = stream(subject.actor, [request(request_id="waiting", max_new_tokens=4)])
    new = tiny_model(tied, seed=3)
    await broadcast(Collective(), subject, new, 3)
    rollout = (await collect(waiting))["waiting"]
    assert set(rollout.completions[0].versions) == {3}
    difference, versions = await error(subject, new, request(max_new_tokens=16))
    assert difference < 1e-4 and versions == {3}


async def test_weights_of_another_model_are_refused_before_any_is_sent(subjects, way):
    subject, model = subjects[False], tiny_model(seed=4)
    await broadcast(way, subject, model, 4)
    with pytest.raises(ValueError, match="missing: lm_head"):
        await broadcast(Collective(), subject, tiny_model(tied=True), 5)
    difference, versions = await error(subject, model, request(max_new_tokens=8))
    assert difference < 1e-4 and versions == {4}
