"""From the spec to the parts of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grpo_trainer.consumer.parallel_dims import ParallelDims
from grpo_trainer.consumer.policy import PolicyOptions
from grpo_trainer.messages import ScoredGroup
from grpo_trainer.options import RunOptions
from grpo_trainer.pipeline import PromptSource, RolloutBuffer
from grpo_trainer.reporting import Reporter, RunPaths
from grpo_trainer.rewards import Scorer
from grpo_trainer.rollout.engine import EngineOptions
from grpo_trainer.spec import (
    GRPOJobSpec,
    ResolvedAlgorithm,
    WeightTransport,
    WeightUpdate,
    resolve_algorithm,
)

from .autoscale import Autoscaler, Range
from .checkpoints import Checkpoint, CheckpointStore
from .consumers import ConsumerGroup
from .prepare import Prepared
from .producer_link import ProducerSettings, Work
from .producers import PoolEvents, ProducerPool
from .ray_session import device_for
from .run_context import PolicyFactory, RunContext, score_rollout
from .weight_publisher import Broadcast, WeightPublisher
from .weight_registry import WeightRegistry


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a run lives on this machine."""

    options: RunOptions
    layout: RunPaths
    store: CheckpointStore


def assemble(
    spec: GRPOJobSpec,
    place: Placement,
    prepared: Prepared,
    origin: Checkpoint | None,
    scorer: Scorer,
    reporter: Reporter,
    on_change: Callable[[], None],
) -> RunContext:
    """Everything but the producers; `on_change` is called when consumers come up or go down."""
    algorithm = resolve_algorithm(spec)
    source = PromptSource(len(prepared.train.prompts), spec.num_episodes, spec.seed)
    first_source, errors = source.state_dict(), Counter[str]()
    if origin is not None:
        state = origin.driver_state()
        first_source = state["source"]
        source.load_state_dict(first_source)
        errors.update(state["scoring_errors"])
    buffer: RolloutBuffer[ScoredGroup] = RolloutBuffer(
        source,
        groups_per_step=spec.groups_per_step,
        capacity=spec.buffer_capacity,
        max_staleness=spec.buffer.max_staleness,
        max_steps=spec.max_steps,
        max_attempts=algorithm.max_attempts,
        lease_seconds=float(spec.stall_timeout_seconds),
        first_step=origin.step if origin else 0,
    )
    c = spec.consumers
    layout = ParallelDims(
        spec.consumer_processes,
        c.tensor_parallel_size,
        c.pipeline_parallel_size,
        c.zero_stage,
    )
    device = device_for(c.accelerator, place.options)
    consumers = ConsumerGroup(
        layout,
        device=device,
        master_port=place.options.master_port,
        startup_seconds=float(spec.startup_deadline_seconds),
        call_seconds=float(spec.stall_timeout_seconds),
        on_change=on_change,
    )
    return RunContext(
        spec=spec,
        algorithm=algorithm,
        prepared=prepared,
        first_source=first_source,
        buffer=buffer,
        scorer=scorer,
        consumers=consumers,
        policy=_policy_factory(
            spec,
            algorithm,
            prepared,
            layout,
            device,
            traces=place.layout.logs if spec.tracking.profiling else None,
        ),
        store=place.store,
        reporter=reporter,
        scoring_errors=errors,
    )


def producer_pool(
    parts: RunContext, place: Placement, python: Path | None, events: PoolEvents
) -> ProducerPool:
    """The producers of a run, in the environment of another interpreter where one is given."""
    spec, prepared = parts.spec, parts.prepared
    device = device_for(spec.producers.accelerator, place.options)
    engine = EngineOptions(
        model_path=prepared.model_path,
        tokenizer_path=prepared.tokenizer_path,
        dtype=spec.model.dtype,
        device=device,
        microbatch=spec.batch.inference_microbatch_size,
        microbatch_completions=spec.batch.inference_microbatch_size * spec.sampling.num_generations,
        trust_remote_code=spec.model.trust_remote_code,
        max_tokens=spec.sampling.max_prompt_tokens + spec.sampling.max_new_tokens,
        tensor_parallel_size=spec.producers.tensor_parallel_size,
        in_flight_updates=spec.producers.weight_update is WeightUpdate.IN_FLIGHT,
    )
    settings = ProducerSettings(
        min_available=spec.producers.min_available,
        backend=spec.producers.backend,
        engine=engine,
        python=python,
        gpus=spec.producers.tensor_parallel_size if device == "cuda" else 0,
        sampling=prepared.sampling,
        num_samples=spec.sampling.num_generations,
        microbatch=spec.batch.inference_microbatch_size,
        batch=spec.batch.inference_batch_size,
        startup_seconds=float(spec.startup_deadline_seconds),
        call_seconds=float(spec.stall_timeout_seconds),
    )
    work = Work(
        parts.buffer,
        prepared.train.prompts,
        on_rollout=lambda lease, rollout: score_rollout(parts, lease, rollout),
        board=WeightRegistry(parts.consumers.fetch),
    )
    # In a cluster the operator makes as many places as are wanted; a Ray of our own has them all.
    choosing = place.options.ray_address is None and spec.producers.autoscale is not None
    limit = spec.producers.replicas if choosing else None
    return ProducerPool(settings, work, events, limit=limit)


def delivery_of(parts: RunContext, pool: ProducerPool, place: Placement) -> WeightPublisher:
    """What takes the weights to the producers, in the way that the spec asks for."""
    spec = parts.spec
    if spec.producers.weight_transport is WeightTransport.OBJECT_STORE:
        return WeightPublisher(parts.consumers, pool)
    accelerators = (spec.consumers.accelerator, spec.producers.accelerator)
    devices = {device_for(accelerator, place.options) for accelerator in accelerators}
    backend = "nccl" if devices == {"cuda"} else "gloo"
    width = spec.producers.tensor_parallel_size
    broadcast = Broadcast(parts.consumers, pool, backend=backend, width=width)
    return WeightPublisher(parts.consumers, pool, broadcast)


def autoscaler_of(spec: GRPOJobSpec) -> Autoscaler | None:
    """What follows how many producers are wanted, where the spec asks for it."""
    scale = spec.producers.autoscale
    if scale is None:
        return None
    return Autoscaler(Range(scale.min_replicas, scale.max_replicas))


def _policy_factory(
    spec: GRPOJobSpec,
    algorithm: ResolvedAlgorithm,
    prepared: Prepared,
    layout: ParallelDims,
    device: str,
    traces: Path | None,
) -> PolicyFactory:
    """What a rank builds when it starts from the given weights."""

    def options(rank: int, weights: str) -> PolicyOptions:
        return PolicyOptions(
            layout=layout,
            rank=rank,
            model_path=weights,
            reference_path=prepared.model_path if algorithm.kl_coefficient > 0 else None,
            dtype=spec.model.dtype,
            gradient_checkpointing=spec.model.gradient_checkpointing,
            trust_remote_code=spec.model.trust_remote_code,
            algorithm=algorithm,
            temperature=spec.sampling.temperature,
            top_k=spec.sampling.top_k,
            top_p=spec.sampling.top_p,
            microbatch=spec.batch.train_microbatch_size,
            total_steps=prepared.total_steps,
            seed=spec.seed,
            device=device,
            trace_directory=str(traces) if traces else None,
        )

    return options
