"""Weights from real consumers to real producers in Ray, by both transports.

Aspects: every version reaches every producer as it is; producers that come late; producers that
are killed, and start again; evaluations hold the version that they need; a whole run.
"""

import asyncio
import os
import signal
import tempfile
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
import ray

from grpo_trainer.messages import GenerationRequest
from support.pipeline import SECONDS, pipeline
from support.producers import trained_logprobs
from support.runs import Run, manifest

TRANSPORTS = pytest.mark.parametrize("transport", ["objectStore", "collective"])


@pytest.fixture(scope="module")
def cluster():
    with tempfile.TemporaryDirectory(prefix="ray") as temp:
        ray.init(
            num_cpus=2,
            resources={"grpo_producer": 3, "grpo_consumer": 1},
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}},
            include_dashboard=False,
            _temp_dir=temp,
            log_to_driver=False,
        )
        yield
        ray.shutdown()


@pytest.fixture
def start(cluster, tmp_path, transport):
    """A pipeline with so many producers, which have the first weights."""

    @asynccontextmanager
    async def begin(count):
        async with pipeline(tmp_path, {"replicas": count, "weightTransport": transport}) as made:
            await made.producers(count)
            made.put.clear()
            yield made

    return begin


def by_object_store(made, versions):
    """What goes through the object store when all is well."""
    return versions if made.context.spec.producers.weight_transport == "objectStore" else []


@TRANSPORTS
async def test_every_completion_is_of_the_version_that_it_names(start):
    async with start(2) as made:
        models = {0: await made.model()}
        for _ in range(4):
            await made.step()
            await made.producers(2)
            models[made.version] = await made.model()
        assert made.put == by_object_store(made, [1, 2, 3, 4])
        await made.step()
    seen = set()
    for group in made.groups:
        asked = GenerationRequest("r", group.prompt.token_ids, 4, 0, made.prepared.sampling)
        for completion in group.rollout.completions:
            [version] = set(completion.versions.tolist())
            seen.add(version)
            expected = trained_logprobs(models[version], asked, completion)
            assert np.abs(completion.logprobs - expected).max() < 1e-4
    assert len(seen) >= 4


@TRANSPORTS
async def test_a_late_producer_gets_the_current_version_and_then_each_with_the_others(start):
    async with start(1) as made:
        await made.step()
        made.put.clear()
        made.pool.scale(2)
        await made.producers(2)
        await made.step()
        await made.producers(2)
        await made.step()
        await made.producers(2)
        # A broadcast is for those who are there: the latecomer fetched what it had missed.
        assert made.put == (by_object_store(made, [2, 3]) or [1])


@TRANSPORTS
async def test_a_killed_producer_holds_up_nobody_and_comes_back(start):
    async with start(3) as made:
        await made.step()
        await made.producers(3)
        first, second, third = (made.pid(f"producer-{i}") for i in range(3))
        # One is dead before the version is sent, one while it is.
        os.kill(first, signal.SIGKILL)
        os.kill(second, signal.SIGSTOP)
        stepping = asyncio.create_task(made.step())
        await asyncio.sleep(1.0)
        os.kill(second, signal.SIGKILL)
        async with asyncio.timeout(SECONDS):
            await stepping
            for _ in range(3):
                await made.step()
        await made.producers(3)
        assert made.pid("producer-2") == third
        assert {made.pid("producer-0"), made.pid("producer-1")}.isdisjoint({first, second})


async def test_deltas_keep_producers_equal_and_a_broken_one_is_replaced_by_a_full_version(
    cluster, tmp_path
):
    # At this learning rate a step changes few elements in bfloat16.
    sections = {
        "model": {"path": "builtin://tiny", "dtype": "bfloat16", "gradientCheckpointing": False},
        "algorithm": {"learningRate": 1e-6, "klCoefficient": 0},
    }
    producers = {"replicas": 2, "weightTransport": "delta"}
    async with pipeline(tmp_path, producers, sections) as made:
        await made.producers(2)
        publisher, weights = made.context.publisher, made.context.consumers.weights
        made.put.clear()
        for _ in range(3):
            await made.step()
            # Each has compared the checksum of all its weights.
            await made.producers(2)
        assert (made.put, publisher.differences) == ([], 0)
        assert publisher.delta_share < 0.5

        intact = weights.publish_delta

        async def tampered(version):
            [delta] = await intact(version)
            found = ray.get(delta.reference)
            words = found.words.copy()
            words[0] ^= 1
            return [replace(delta, reference=ray.put(replace(found, words=words)))]

        weights.publish_delta = tampered
        await made.step()
        await made.producers(2)
        assert (made.put, publisher.differences) == ([made.version], 2)
        weights.publish_delta = intact
        await made.step()
        await made.producers(2)
        assert publisher.differences == 2


def test_a_run_by_broadcasts_trains_every_prompt_once_and_evaluates_every_row(tmp_path):
    file = manifest(
        tmp_path / "job.yaml",
        maxSteps=20,
        producers={"replicas": 2, "weightTransport": "collective"},
        evaluation={"datasets": {"held": "builtin://addition-held-out"}, "interval": 7},
        buffer={"maxStaleness": 2},
        checkpoint={"interval": 8},
    )
    run = Run(tmp_path / "run", str(file))
    try:
        run.until(lambda: run.steps >= 10)
        run.actors("Producer")[0].kill()
        assert run.wait() == 0, run.output[-3000:]
        assert [line["grpo_step"] for line in run.metrics] == list(range(1, 21))
        last = run.metrics[-1]
        assert last["grpo_groups_total_trained"] == 20 * 8
        assert last["grpo_groups_total_dropped"] == 0
        evaluated = sorted(path.name for path in (run.directory / "eval").iterdir())
        assert evaluated == [f"held_step_{step}.jsonl" for step in (0, 14, 20, 7)]
        assert run.leftovers() == []
    finally:
        run.end()
