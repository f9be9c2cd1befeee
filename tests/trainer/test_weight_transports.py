"""Weights from a trainer to transformers engines, by object store and by broadcast.

Aspects: every bit arrives, also of pipeline stages; what a token is drawn from is whole, whatever
happens at the same time; engines that come late; members that die, hang or are of another model;
memory.
"""

import asyncio

import numpy as np
import pytest
import torch

from grpo_trainer.rollout.factory import create_engine
from grpo_trainer.transport import group
from grpo_trainer.transport.group import BroadcastAbortedError, WeightReceiver, WeightsLostError
from grpo_trainer.transport.plan import BUCKET_BYTES, GroupMember, Stage, buckets, span
from grpo_trainer.weights import layout
from support.producers import trained_logprobs
from support.transports import CPU, HOST, Collective, ObjectStore, writable
from unit.rollout.tiny_models import bundle, options, request, save_directory, tiny_model

TRANSPORTS = pytest.mark.parametrize("transport", [ObjectStore, Collective])


@pytest.fixture
async def engines(tmp_path):
    """A function that makes so many engines without weights."""
    made = []

    def make(count, tied=False):
        save_directory(tiny_model(tied), tmp_path)
        fresh = [create_engine("transformers", options(tmp_path)) for _ in range(count)]
        made.extend(fresh)
        return fresh

    yield make
    for engine in made:
        await engine.close()


def stages(model, version):
    """A version in two pipeline stages."""
    first = bundle(model, version, lambda name: "embed" in name or "layers.0" in name)
    last = bundle(model, version, lambda name: "embed" not in name and "layers.0" not in name)
    return [writable(first), writable(last)]


def whole(model, version):
    return [writable(bundle(model, version))]


def assert_equal_bits(engine, model):
    held = engine._model.state_dict()
    expected = model.state_dict()
    assert held.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(held[name].view(torch.uint8), tensor.view(torch.uint8)), name


@TRANSPORTS
@pytest.mark.parametrize("cut", [whole, stages])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
async def test_every_bit_of_every_version_arrives(engines, transport, cut, tied):
    pair, way = engines(2, tied), transport()
    for version in range(4):
        model = tiny_model(tied, seed=version)
        await way.deliver(pair, cut(model, version))
        for engine in pair:
            assert engine.version == version
            assert_equal_bits(engine, model)


@TRANSPORTS
async def test_completions_are_of_whole_versions_while_weights_keep_coming(engines, transport):
    pair, way = engines(2), transport()
    models = [tiny_model(seed=version) for version in range(12)]
    await way.deliver(pair, stages(models[0], 0))
    completions = []

    async def ask_on(engine, seed):
        while engine.version < len(models) - 1:
            seed += 1
            asked = request(samples=4, seed=seed, max_new_tokens=12)
            completions.append((asked, await engine.generate(asked)))

    asking = [asyncio.create_task(ask_on(engine, 1000 * i)) for i, engine in enumerate(pair)]
    for version, model in enumerate(models[1:], 1):
        await way.deliver(pair, stages(model, version))
        await asyncio.sleep(0.02)
    await asyncio.gather(*asking)
    seen = set()
    for asked, rollout in completions:
        for completion in rollout.completions:
            [version] = set(completion.versions.tolist())
            seen.add(version)
            expected = trained_logprobs(models[version], asked, completion)
            assert np.abs(completion.logprobs - expected).max() < 1e-5
    assert len(seen) > 3


@TRANSPORTS
async def test_an_engine_that_comes_late_gets_the_next_version_with_the_others(engines, transport):
    first, late = engines(2)
    way = transport()
    await way.deliver([first], whole(tiny_model(seed=1), 1))
    await way.deliver([first, late], whole(tiny_model(seed=2), 2))
    for engine in (first, late):
        assert_equal_bits(engine, tiny_model(seed=2))


@TRANSPORTS
async def test_weights_of_another_model_are_refused_and_the_old_ones_stay(engines, transport):
    [engine] = engines(1)
    way = transport()
    await ObjectStore().deliver([engine], whole(tiny_model(seed=1), 1))
    with pytest.raises(ValueError, match="missing: lm_head"):
        await way.deliver([engine], whole(tiny_model(tied=True), 2))
    assert engine.version == 1
    assert_equal_bits(engine, tiny_model(seed=1))


class Lone:
    """A receiver without an engine, to be lost at will."""

    def __init__(self):
        self.receiver = None

    async def join_group(self, members):
        self.receiver = await asyncio.to_thread(WeightReceiver, members, 0, CPU)

    async def receive_weights(self, version, *, tensors=None):
        """Take part, or leave after so many tensors."""

        def receive():
            self.receiver.handshake(version)
            for count, _ in enumerate(self.receiver.tensors(keep=False), 1):
                if count == tensors:
                    break
            self.receiver = None if tensors is not None else self.receiver

        await asyncio.to_thread(receive)


@pytest.fixture
def small_buckets(monkeypatch):
    """Several buckets for a small model."""
    monkeypatch.setattr(group, "buckets", lambda entries: buckets(entries, limit=50_000))


async def test_a_member_that_dies_in_the_middle_tears_nothing_that_is_ever_used(
    engines, small_buckets
):
    [engine] = engines(1)
    way, lone, old, new = Collective(), Lone(), tiny_model(seed=1), tiny_model(seed=2)
    await way.deliver([engine, lone], whole(old, 1))
    sending = asyncio.create_task(way.send(whole(new, 2)))
    results = await asyncio.gather(
        sending,
        engine.receive_weights(2),
        lone.receive_weights(2, tensors=2),
        return_exceptions=True,
    )
    assert isinstance(results[0], RuntimeError)
    # It received all of it, or has no weights and generates nothing.
    assert engine.version in (None, 2)
    waiting = asyncio.create_task(engine.generate(request(max_new_tokens=4)))
    await way.deliver([engine], whole(new, 3))
    assert_equal_bits(engine, new)
    assert set((await waiting).completions[0].versions) <= {2, 3}


async def test_without_whole_weights_requests_wait(engines, small_buckets):
    [engine] = engines(1)
    way, model = Collective(), tiny_model(seed=1)
    await way.deliver([engine], whole(model, 1))
    running = asyncio.create_task(engine.receive_weights(2))
    sender, version = way.senders[0], whole(tiny_model(seed=2), 2)[0]
    await asyncio.to_thread(sender._handshake, 2)
    first = next(buckets(version.entries, limit=50_000))
    part = torch.from_numpy(version.data)[span(first)]
    await asyncio.to_thread(sender._group.broadcast, part)
    sender._group = None  # its process was lost
    with pytest.raises(WeightsLostError):
        await running
    assert engine.version is None
    waiting = asyncio.create_task(engine.generate(request(max_new_tokens=4)))
    done, _ = await asyncio.wait({waiting}, timeout=0.3)
    assert not done
    await ObjectStore().deliver([engine], whole(model, 3))
    assert set((await waiting).completions[0].versions) == {3}
    assert_equal_bits(engine, model)


async def test_a_member_that_is_not_ready_costs_a_deadline_and_nobodys_weights(
    engines, monkeypatch
):
    monkeypatch.setattr(group, "READY_SECONDS", 0.5)
    [engine] = engines(1)
    way, hung, old = Collective(), Lone(), tiny_model(seed=1)
    await way.form([engine, hung], whole(old, 0))
    await ObjectStore().deliver([engine], whole(old, 1))
    sent, received = await asyncio.gather(
        way.send(whole(tiny_model(seed=2), 2)), engine.receive_weights(2), return_exceptions=True
    )
    assert isinstance(sent, BroadcastAbortedError) and "ranks [2]" in str(sent)
    assert isinstance(received, BroadcastAbortedError)
    assert engine.version == 1
    await way.deliver([engine], whole(tiny_model(seed=3), 3))
    assert_equal_bits(engine, tiny_model(seed=3))


async def test_a_round_can_be_called_off_while_it_waits(engines):
    [engine] = engines(1)
    way, dead = Collective(), Lone()
    await way.form([engine, dead], whole(tiny_model(), 0))
    sending = asyncio.create_task(way.send(whole(tiny_model(), 1)))
    receiving = asyncio.create_task(engine.receive_weights(1))
    await asyncio.to_thread(way.senders[0].abort_broadcast, 1)
    results = await asyncio.gather(sending, receiving, return_exceptions=True)
    assert [type(result) for result in results] == [BroadcastAbortedError, BroadcastAbortedError]


async def test_an_engine_in_no_group_says_so(engines):
    with pytest.raises(BroadcastAbortedError, match="in no group"):
        await engines(1)[0].receive_weights(1)


async def test_a_receiver_holds_a_bucket_however_large_a_version_is():
    tensors = 24
    size = BUCKET_BYTES // 4
    entries = layout((f"t{i}", "uint8", (size,), size) for i in range(tensors))
    way, held = Collective(), []
    data = torch.zeros(tensors * size, dtype=torch.uint8)

    class Watcher(Lone):
        async def receive_weights(self, version):
            def receive():
                self.receiver.handshake(version)
                for _, tensor in self.receiver.tensors(keep=False):
                    held.append(tensor.untyped_storage())

            await asyncio.to_thread(receive)

    watcher = Watcher()
    sender = group.WeightSender(HOST, 2, "gloo", CPU)
    way.senders = [sender]
    member = GroupMember(Stage(HOST, sender.port, entries), 1, 2, "gloo")
    await asyncio.gather(asyncio.to_thread(sender.join), watcher.join_group([member]))
    sending = asyncio.to_thread(sender.send, 0, entries, data)
    await asyncio.gather(sending, watcher.receive_weights(0))
    assert len(held) == tensors
    assert len({storage.data_ptr() for storage in held}) == 1
    assert held[0].nbytes() == BUCKET_BYTES
