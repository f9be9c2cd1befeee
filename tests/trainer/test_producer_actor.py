"""The producer as a Ray actor: streams, weights by reference, deadlines, reports, its end."""

import os
import tempfile
import threading

import pytest
import ray

from grpo_trainer.rollout.engine import EngineClosedError
from grpo_trainer.rollout.producer import Producer
from unit.rollout.tiny_models import (
    bundle,
    chain_model,
    options,
    request,
    save_directory,
    text_chain,
    tiny_model,
)

SECONDS = 60
"""Deadline of every wait on the actor."""


@pytest.fixture(scope="module")
def cluster():
    with tempfile.TemporaryDirectory(prefix="ray") as temp:
        ray.init(num_cpus=2, include_dashboard=False, _temp_dir=temp, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.fixture
def producer(cluster, tmp_path):
    save_directory(tiny_model(), tmp_path)
    actor = (
        ray.remote(Producer)
        .options(num_cpus=0)
        .remote(options(tmp_path, microbatch=2), "transformers", "producer-0")
    )
    yield actor
    ray.kill(actor)


def load(producer, model, version=0):
    bundles = [ray.put(bundle(model, version))]
    return ray.get(producer.load_weights.remote(bundles), timeout=SECONDS)


def stream(producer, requests):
    return producer.rollout.options(num_returns="streaming").remote(requests)


async def collect(rollouts):
    return [rollout async for reference in rollouts for rollout in await reference]


def texts(rollouts):
    return [c.text for rollout in rollouts for c in rollout.completions]


def test_it_says_who_and_where_it_is_before_it_has_weights(producer):
    info = ray.get(producer.ready.remote(), timeout=SECONDS)
    assert (info.name, info.backend) == ("producer-0", "transformers")
    assert info.pid != os.getpid()
    assert ray.get(producer.stats.remote(), timeout=SECONDS).version is None


async def test_rollouts_stream_as_they_finish(producer):
    load(producer, chain_model(text_chain("=abcdefgh")))
    long, short = ([request(max_new_tokens=n, request_id=str(n))] for n in (8, 2))
    # The short one shares no micro-batch with the others, and comes before the second of them.
    rollouts = await collect(stream(producer, [*long * 2, *short, *long]))
    assert [rollout.request_id for rollout in rollouts] == ["8", "8", "2", "8"]


async def test_rollouts_of_one_micro_batch_arrive_as_one_item(producer):
    load(producer, chain_model(text_chain("=ab")))
    items = [await ref async for ref in stream(producer, [request(request_id=i) for i in "0123"])]
    assert [[rollout.request_id for rollout in item] for item in items] == [["0", "1"], ["2", "3"]]


async def test_several_calls_are_served_at_once(producer):
    streams = [stream(producer, [request("=", request_id=str(i))]) for i in range(3)]
    load(producer, chain_model(text_chain("=ab")))
    rollouts = [rollout for s in streams for rollout in await collect(s)]
    assert [rollout.request_id for rollout in rollouts] == ["0", "1", "2"]
    assert texts(rollouts) == ["ab"] * 3


async def test_pipeline_stages_arrive_by_reference_as_one_version(producer):
    model = chain_model(text_chain("=xyz"))
    stages = [
        ray.put(bundle(model, 4, lambda name: "embed" in name)),
        ray.put(bundle(model, 4, lambda name: "embed" not in name)),
    ]
    seconds = ray.get(producer.load_weights.remote(stages), timeout=SECONDS)
    [rollout] = await collect(stream(producer, [request()]))
    [completion] = rollout.completions
    assert completion.text == "xyz"
    assert set(completion.versions) == {4}
    stats = ray.get(producer.stats.remote(), timeout=SECONDS)
    assert (stats.version, stats.apply_seconds) == (4, seconds)
    assert stats.busy_seconds > 0


async def test_weights_that_never_arrive_are_given_up_and_the_old_ones_serve_on(producer):
    @ray.remote(num_cpus=0)
    def stuck_trainer():
        threading.Event().wait(SECONDS)

    load(producer, chain_model(text_chain("=ab")))
    never = stuck_trainer.remote()
    late = producer.load_weights.remote([never], deadline_seconds=0.5)
    with pytest.raises(TimeoutError, match=r"did not arrive in 0\.5 s"):
        ray.get(late, timeout=SECONDS)
    ray.cancel(never, force=True)
    assert texts(await collect(stream(producer, [request()]))) == ["ab"]
    load(producer, chain_model(text_chain("=yz")), version=2)
    assert texts(await collect(stream(producer, [request()]))) == ["yz"]


async def test_weights_of_another_model_are_refused_by_name(producer):
    with pytest.raises(ValueError, match=r"missing: .*lm_head\.weight"):
        load(producer, tiny_model(tied=True))


async def test_shutdown_fails_the_requests_that_are_waiting(producer):
    waiting = stream(producer, [request(), request()])
    ray.get(producer.stats.remote(), timeout=SECONDS)
    ray.get(producer.shutdown.remote(), timeout=SECONDS)
    with pytest.raises(EngineClosedError):
        await collect(waiting)
