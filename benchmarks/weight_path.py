"""Transfer of a weight version through the real actors of a run; `weights.py` prints its times."""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import ray

from grpo_trainer.builtin.tokenizer import VOCAB_SIZE, build_tokenizer
from grpo_trainer.consumer.parallel_dims import ParallelDims
from grpo_trainer.consumer.records import PolicyOptions
from grpo_trainer.driver.consumers import ConsumerGroup
from grpo_trainer.driver.ray_session import PRODUCER, ray_session
from grpo_trainer.options import RunOptions
from grpo_trainer.rollout.engine import EngineOptions
from grpo_trainer.rollout.producer import Producer
from grpo_trainer.spec import Backend, Dtype, GRPOJob, GRPOJobSpec, resolve_algorithm
from grpo_trainer.transport.plan import GroupMember

DEADLINE_SECONDS = 300.0
"""Deadline of every call."""
WARM_UP = 2
"""Versions that are not measured: they touch every memory page for the first time."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Size:
    """Widths of a model of two layers."""

    hidden: int
    intermediate: int


@dataclass(frozen=True, slots=True)
class Trip:
    """Seconds for one version."""

    memcpy: float
    """The reference: a copy of its bytes between arrays, in this process."""
    snapshot: float
    """To the host buffer of the consumer; training waits for it."""
    publish: float
    """From there to the object store; overlaps the next step."""
    deliver: float
    """From the object store to the producer's model, including the call."""
    apply: float
    """The part of it during which generation stops."""
    broadcast: float
    """From the host buffer to the producer's model by the collective transport."""
    receive: float
    """The part of it during which generation stops."""


@dataclass(frozen=True, slots=True)
class Measured:
    """All versions of one size."""

    weight_bytes: int
    trips: tuple[Trip, ...]


def measure(sizes: list[Size], versions: int, threads: int, directory: Path) -> list[Measured]:
    """Send `versions` of each size through actors with `threads` threads of torch."""
    models = [_save_model(directory / f"model-{index}", size) for index, size in enumerate(sizes)]
    actors = {"replicas": 1, "accelerator": "cpu"}
    spec = GRPOJob.model_validate(
        {
            "spec": {
                "producers": actors,
                "consumers": {**actors, "processesPerReplica": 1},
                "env": [{"name": "OMP_NUM_THREADS", "value": str(threads)}],
            }
        }
    ).spec
    logs = directory / "logs"
    logs.mkdir()
    with ray_session(spec, RunOptions(run_dir=directory), logs):
        return [asyncio.run(_trips(spec, model, versions)) for model in models]


def _save_model(directory: Path, size: Size) -> Path:
    """A Qwen2 of random weights in fp32, with the built-in tokenizer."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=2,
        num_attention_heads=size.hidden // 64,
        num_key_value_heads=max(2, size.hidden // 128),
        tie_word_embeddings=False,
        use_sliding_window=False,
        sliding_window=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(directory)
    build_tokenizer().save_pretrained(directory)
    return directory


async def _trips(spec: GRPOJobSpec, model: Path, versions: int) -> Measured:
    consumers = ConsumerGroup(
        ParallelDims(1),
        device="cpu",
        master_port=None,
        startup_seconds=DEADLINE_SECONDS,
        call_seconds=DEADLINE_SECONDS,
        on_change=lambda: None,
    )
    engine = EngineOptions(str(model), str(model), Dtype.FLOAT32, "cpu", microbatch=1)
    create = ray.remote(num_cpus=0, resources={PRODUCER: 1})(Producer).remote
    producer = create(engine, Backend.TRANSFORMERS, "producer-0")
    try:
        await consumers.start(lambda _: _policy(spec, model), None)
        await consumers.snapshot(0)
        await _join(consumers, producer)
        await consumers.weights.release_snapshot()
        trips = []
        for version in range(1, 1 + WARM_UP + versions):
            trip, size = await _trip(consumers, producer, version)
            trips.append(trip)
        return Measured(size, tuple(trips[WARM_UP:]))
    finally:
        consumers.kill()
        ray.kill(producer)


def _policy(spec: GRPOJobSpec, model: Path) -> PolicyOptions:
    return PolicyOptions(
        dims=ParallelDims(1),
        rank=0,
        model_path=str(model),
        reference_path=None,
        dtype=Dtype.FLOAT32,
        gradient_checkpointing=False,
        trust_remote_code=False,
        algorithm=resolve_algorithm(spec),
        temperature=1.0,
        top_k=None,
        top_p=1.0,
        microbatch=1,
        total_steps=1,
        seed=0,
        device="cpu",
    )


async def _trip(consumers: ConsumerGroup, producer: Any, version: int) -> tuple[Trip, int]:
    snapshot, _ = await _timed(consumers.snapshot(version))
    broadcast, receive = await _timed(_broadcast(consumers, producer, version))
    publish, references = await _timed(consumers.weights.publish(version))
    assert references is not None
    deliver, apply = await _timed(producer.load_weights.remote(references))
    source = (await references[0]).data.copy()
    target = np.zeros_like(source)
    began = time.perf_counter()
    np.copyto(target, source)
    memcpy = time.perf_counter() - began
    return Trip(memcpy, snapshot, publish, deliver, apply, broadcast, receive), source.nbytes


async def _join(consumers: ConsumerGroup, producer: Any) -> None:
    """Create the broadcast group."""
    await producer.ready.remote()
    stages = await consumers.weights.open_group(2, "gloo")
    seats = [GroupMember(stage, 1, 2, "gloo") for stage in stages]
    fault, _ = await asyncio.gather(
        consumers.weights.join_group(), producer.join_group.remote(seats)
    )
    assert not fault, fault


async def _broadcast(consumers: ConsumerGroup, producer: Any, version: int) -> float:
    """Returns the seconds that generation stopped."""
    receiving = producer.receive_weights.remote(version)
    fault, seconds = await asyncio.gather(consumers.weights.send(version), receiving)
    assert not fault, fault
    return float(seconds)


async def _timed(call: Awaitable[T]) -> tuple[float, T]:
    began = time.perf_counter()
    async with asyncio.timeout(DEADLINE_SECONDS):
        result = await call
    return time.perf_counter() - began, result
