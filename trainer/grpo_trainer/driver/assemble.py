"""From the spec to the components of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grpo_trainer.consumer.parallel_dims import ParallelDims
from grpo_trainer.consumer.records import PolicyOptions
from grpo_trainer.environments.episode import EpisodeLimits
from grpo_trainer.environments.health import EnvironmentHealth
from grpo_trainer.environments.producing import EnvironmentOptions
from grpo_trainer.messages import ScoredGroup
from grpo_trainer.options import RunOptions
from grpo_trainer.pipeline import ChangeSignal, Limits, PromptSource, RolloutBuffer
from grpo_trainer.reporting import Reporter, RunPaths
from grpo_trainer.rewards import Scorer
from grpo_trainer.rollout.engine import EngineOptions
from grpo_trainer.spec import (
    ConsumerBackend,
    GRPOJobSpec,
    ResolvedAlgorithm,
    WeightTransport,
    WeightUpdate,
    resolve_algorithm,
)

from .autoscale import Autoscaler, Range
from .broadcast import Broadcast
from .checkpoint_writer import CheckpointWriter
from .checkpoints import Checkpoint, CheckpointStore
from .consumers import ConsumerGroup
from .evaluation import EvaluationQueue, Evaluator
from .prepare import Prepared
from .producer_client import ProducerSettings
from .producer_session import ProducerWork
from .producers import PoolEvents, ProducerPool
from .ray_session import device_for
from .run_context import PolicyFactory, RunContext, score_rollout
from .run_health import RunHealth
from .weight_deltas import DeltaChain
from .weight_publisher import WeightPublisher


@dataclass(frozen=True, slots=True)
class Placement:
    """Directories and addresses of a run on this machine."""

    options: RunOptions
    paths: RunPaths
    store: CheckpointStore


def assemble(
    spec: GRPOJobSpec,
    placement: Placement,
    prepared: Prepared,
    origin: Checkpoint | None,
    scorer: Scorer,
    reporter: Reporter,
    on_change: Callable[[], None],
) -> RunContext:
    """All components but the producers; `on_change` is called when consumers start or end."""
    algorithm = resolve_algorithm(spec)
    count = len(prepared.train.prompts)
    source = PromptSource(count, spec.num_episodes, spec.seed, prepared.mixture)
    first_source, errors = source.state_dict(), Counter[str]()
    if origin is not None:
        state = origin.driver_state()
        first_source = state["source"]
        source.load_state_dict(first_source)
        errors.update(state["scoring_errors"])
    buffer: RolloutBuffer[ScoredGroup] = RolloutBuffer(
        source,
        Limits(
            groups_per_step=spec.groups_per_step,
            capacity=spec.buffer_capacity,
            max_staleness=spec.buffer.max_staleness,
            max_steps=spec.max_steps,
        ),
        max_attempts=algorithm.max_attempts,
        lease_seconds=float(spec.worker_timeout_seconds),
        first_step=origin.step if origin else 0,
    )
    consumers, policy = _consumers(spec, algorithm, prepared, placement, on_change)
    changed = ChangeSignal()
    publisher = WeightPublisher(
        consumers.weights,
        changed,
        buffer.loaded,
        _broadcast(spec, consumers, placement),
        DeltaChain() if spec.producers.weight_transport is WeightTransport.DELTA else None,
    )
    checkpoints = CheckpointWriter(placement.store, consumers, buffer, prepared, spec, errors)
    return RunContext(
        spec=spec,
        algorithm=algorithm,
        prepared=prepared,
        first_source=first_source,
        buffer=buffer,
        scorer=scorer,
        consumers=consumers,
        publisher=publisher,
        evaluations=EvaluationQueue(publisher, changed),
        changed=changed,
        policy=policy,
        checkpoints=checkpoints,
        reporter=reporter,
        scoring_errors=errors,
        health=RunHealth(),
        environment=EnvironmentHealth(),
        logs=placement.paths.logs,
    )


def producer_pool(
    context: RunContext, placement: Placement, python: Path | None, events: PoolEvents
) -> ProducerPool:
    """The producers of a run; `python` is the interpreter of their environment, if not ours."""
    spec = context.spec
    # In a cluster the operator provides as many places as are wanted; a local Ray has them all.
    own_ray = placement.options.ray_address is None
    limit = spec.producers.replicas if own_ray and spec.producers.autoscale is not None else None
    settings = producer_settings(context, placement, python)
    return ProducerPool(settings, producer_work(context), events, limit=limit)


def producer_settings(
    context: RunContext, placement: Placement, python: Path | None
) -> ProducerSettings:
    """The settings that all producers share; `python` as for `producer_pool`."""
    spec, prepared = context.spec, context.prepared
    device = device_for(spec.producers.accelerator, placement.options)
    engine = EngineOptions(
        model_path=prepared.model_path,
        tokenizer_path=prepared.tokenizer_path,
        dtype=spec.model.dtype,
        device=device,
        microbatch=spec.batch.inference_microbatch_size,
        microbatch_completions=spec.batch.inference_microbatch_size * spec.sampling.num_generations,
        trust_remote_code=spec.model.trust_remote_code,
        max_tokens=spec.sampling.max_prompt_tokens + spec.completion_tokens,
        tensor_parallel_size=spec.producers.tensor_parallel_size,
        in_flight_updates=spec.producers.weight_update is WeightUpdate.IN_FLIGHT,
    )
    return ProducerSettings(
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
        call_seconds=float(spec.worker_timeout_seconds),
        environment=_environment(spec, prepared),
        deltas=spec.producers.weight_transport is WeightTransport.DELTA,
    )


def producer_work(context: RunContext) -> ProducerWork:
    """Where producers take prompts and weights from, and where their rollouts go."""
    return ProducerWork(
        buffer=context.buffer,
        prompts=context.prepared.train.prompts,
        on_rollout=lambda lease, rollout: score_rollout(context, lease, rollout),
        publisher=context.publisher,
        evaluations=context.evaluations,
        changed=context.changed,
        health=context.health,
    )


def _environment(spec: GRPOJobSpec, prepared: Prepared) -> EnvironmentOptions | None:
    environment, running = spec.environment, prepared.environment
    if environment is None or running is None:
        return None
    capacity = running.capacity
    most = environment.max_concurrent
    if capacity is not None:  # a server that is full would refuse more
        most = min(most, max(1, capacity // spec.producers.most_replicas))
    return EnvironmentOptions(
        url=running.url,
        limits=EpisodeLimits(
            max_turns=environment.max_turns,
            max_prompt_tokens=spec.sampling.max_prompt_tokens,
            max_episode_tokens=environment.max_episode_tokens,
            max_observation_tokens=environment.max_observation_tokens,
            step_seconds=environment.step_timeout_seconds,
        ),
        unavailable_seconds=environment.unavailable_timeout_seconds,
        max_concurrent=most,
    )


def evaluator_of(context: RunContext, scorer: Scorer) -> Evaluator | None:
    """The evaluator, where the spec asks for evaluations; `scorer` is that of their reward."""
    prepared, spec = context.prepared, context.spec
    if not prepared.evaluation or spec.evaluation.interval == 0:
        return None
    return Evaluator(
        prepared.evaluation,
        spec.seed,
        context.evaluations,
        scorer,
    )


def autoscaler_of(spec: GRPOJobSpec) -> Autoscaler | None:
    """The autoscaler, where the spec asks for one."""
    scale = spec.producers.autoscale
    if scale is None:
        return None
    return Autoscaler(Range(scale.min_replicas, scale.max_replicas))


def _consumers(
    spec: GRPOJobSpec,
    algorithm: ResolvedAlgorithm,
    prepared: Prepared,
    placement: Placement,
    on_change: Callable[[], None],
) -> tuple[ConsumerGroup, PolicyFactory]:
    dims = ParallelDims(
        spec.consumer_processes,
        spec.consumers.tensor_parallel_size,
        spec.consumers.pipeline_parallel_size,
        spec.consumers.zero_stage,
        sharded_parameters=spec.consumers.backend is ConsumerBackend.FSDP,
    )
    device = device_for(spec.consumers.accelerator, placement.options)
    group = ConsumerGroup(
        dims,
        device=device,
        master_port=placement.options.master_port,
        startup_seconds=float(spec.startup_deadline_seconds),
        call_seconds=float(spec.worker_timeout_seconds),
        on_change=on_change,
    )
    traces = placement.paths.logs if spec.tracking.profiling else None
    return group, _policy_factory(spec, algorithm, prepared, dims, device, traces)


def _broadcast(
    spec: GRPOJobSpec, consumers: ConsumerGroup, placement: Placement
) -> Broadcast | None:
    if spec.producers.weight_transport is not WeightTransport.COLLECTIVE:
        return None
    accelerators = (spec.consumers.accelerator, spec.producers.accelerator)
    devices = {device_for(accelerator, placement.options) for accelerator in accelerators}
    backend = "nccl" if devices == {"cuda"} else "gloo"
    return Broadcast(consumers.weights, backend=backend, width=spec.producers.tensor_parallel_size)


def _policy_factory(
    spec: GRPOJobSpec,
    algorithm: ResolvedAlgorithm,
    prepared: Prepared,
    dims: ParallelDims,
    device: str,
    traces: Path | None,
) -> PolicyFactory:
    def options(rank: int, weights: str) -> PolicyOptions:
        return PolicyOptions(
            dims=dims,
            backend=spec.consumers.backend,
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
