"""A run with the real driver whose producers and consumers wait instead of computing.

Training loop, buffer, scorer, weight publisher, producer sessions and reports are those of a run.
A producer generates a number of groups at a time, each for as long as its longest completion
takes; an update stops it as it stops the engine. Durations depend on seeds alone, so every schedule
has the same work.
"""

from __future__ import annotations

import asyncio
import functools
import io
import math
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from grpo_trainer.algorithm.batching import StepBatch
from grpo_trainer.algorithm.totals import LossSums
from grpo_trainer.driver.accounting import Ledger
from grpo_trainer.driver.assemble import (
    Placement,
    assemble,
    producer_settings,
    producer_work,
)
from grpo_trainer.driver.checkpoints import CheckpointStore
from grpo_trainer.driver.consumers import TrainedStep
from grpo_trainer.driver.engine_check import EngineCheck
from grpo_trainer.driver.loop import TrainingLoop
from grpo_trainer.driver.prepare import prepare
from grpo_trainer.driver.producer_session import ProducerSession
from grpo_trainer.driver.run_context import RunContext
from grpo_trainer.driver.step_recorder import StepRecorder
from grpo_trainer.driver.step_runner import StepRunner
from grpo_trainer.driver.weight_publisher import WeightPublisher
from grpo_trainer.events import StepReport
from grpo_trainer.messages import Completion, FinishReason, GenerationRequest, Rollout
from grpo_trainer.options import RunOptions
from grpo_trainer.pipeline import ChangeSignal
from grpo_trainer.reporting import RunPaths, open_reporter
from grpo_trainer.rewards import Scorer
from grpo_trainer.rollout.producer import ProducerInfo, ProducerStats
from grpo_trainer.spec import GRPOJob

SCORING_PROCESSES = 1


@dataclass(frozen=True, slots=True)
class Durations:
    """The time of each part, in seconds."""

    group: float
    """Mean time of a group on a producer."""
    spread: float
    """Standard deviation of the logarithm of a completion's length."""
    train: float
    publish: float
    """From the snapshot until producers can fetch the version."""
    apply: float
    """Pause of a producer for new weights."""
    completions: int
    """Of a group."""
    tokens: int = 8
    """Of a completion, as far as the driver has to move and count them."""

    def of_group(self, seed: int) -> float:
        """The time of one group: that of the longest of its completions."""
        random = np.random.default_rng((seed, self.completions))
        longest = math.exp(self.spread * random.standard_normal(self.completions).max())
        return self.group * longest / _mean_longest(self.spread, self.completions)


@functools.cache
def _mean_longest(spread: float, count: int) -> float:
    """Mean of the longest of `count` log-normal lengths with median 1."""
    draws = np.random.default_rng(0).standard_normal((4096, count)).max(axis=1)
    return float(np.exp(spread * draws).mean())


class WaitingProducer:
    """Replaces a `ProducerClient`: generation is a wait."""

    def __init__(self, name: str, durations: Durations, slots: int, *, in_flight: bool) -> None:
        self.name = name
        self.actor = None
        self.generated: list[float] = []
        """Time of each finished group."""
        self._durations = durations
        self._slots = slots
        self._free = asyncio.Semaphore(slots)
        self._in_flight = in_flight
        self._version = -1
        self._running = 0
        self._paused = 0.0
        self._apply_seconds = 0.0
        self._changed = ChangeSignal()
        self._updating = False

    async def ready(self) -> ProducerInfo:
        return ProducerInfo(self.name, "simulated", "localhost", 0, "node")

    async def stats(self) -> ProducerStats:
        busy = sum(self.generated) / self._slots
        return ProducerStats(self._version, busy, self._apply_seconds)

    async def terminated(self) -> None:
        await asyncio.Event().wait()

    async def load(self, references: Sequence[Any]) -> float:
        """Switch to a version: at once with in-flight updates, else between completions."""
        self._updating = True
        if not self._in_flight:
            await self._changed.wait_for(lambda: self._running == 0)
        await asyncio.sleep(self._durations.apply)
        self._paused += self._durations.apply
        self._version = references[0]
        self._updating = False
        self._changed.notify()
        self._apply_seconds += self._durations.apply
        return self._durations.apply

    async def rollouts(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[Rollout]:
        tasks = [asyncio.create_task(self._generate(request)) for request in requests]
        for task in asyncio.as_completed(tasks):
            yield await task

    def kill(self) -> None:
        """Nothing to end."""

    async def _generate(self, request: GenerationRequest) -> Rollout:
        async with self._free:
            await self._changed.wait_for(lambda: not self._updating)
            self._running += 1
            first, seconds = self._version, self._durations.of_group(request.seed)
            await self._wait(seconds)
            self._running -= 1
        self.generated.append(seconds)
        self._changed.notify()
        return _rollout(request, self._durations.tokens, first, self._version)

    async def _wait(self, seconds: float) -> None:
        """Wait for a time of generation; pauses for updates do not count."""
        while seconds > 0:
            paused = self._paused
            await asyncio.sleep(seconds)
            seconds = self._paused - paused


def _rollout(request: GenerationRequest, tokens: int, first: int, last: int) -> Rollout:
    """Completions whose rewards differ; the weights change in their middle, if at all."""
    versions = np.full(tokens, first, dtype=np.int32)
    versions[tokens // 2 :] = last
    token_ids = np.full(tokens, 5, dtype=np.int32)
    logprobs = np.full(tokens, -1.0, dtype=np.float32)
    completions = tuple(
        Completion(token_ids, logprobs, versions, "x" * (index % 2), FinishReason.STOP)
        for index in range(request.num_samples)
    )
    return Rollout(request.request_id, completions)


@dataclass(slots=True)
class _WaitingWeights:
    """Replaces `ConsumerWeights`."""

    seconds: float

    async def publish(self, version: int) -> list[Any]:
        await asyncio.sleep(self.seconds)
        return [version]

    async def fetch(self, version: int) -> list[Any]:
        return [version]


class WaitingConsumers:
    """Replaces a `ConsumerGroup`: a step is a wait."""

    def __init__(self, durations: Durations, count: int) -> None:
        self.weights = _WaitingWeights(durations.publish)
        self.ready = count
        self._durations = durations

    async def start(self, *_: Any) -> None:
        """Nothing to start."""

    async def snapshot(self, version: int) -> None:
        """Nothing to copy."""

    async def train(
        self, batch: StepBatch, step: int, *, with_log_ratios: bool = False
    ) -> TrainedStep:
        assert not with_log_ratios, "no rollouts are logged"
        await asyncio.sleep(self._durations.train)
        tokens = batch.statistics.response_tokens
        return TrainedStep(
            LossSums(tokens=tokens, ratio=tokens, ratio_squared=tokens),
            1.0,
            1e-6,
            self._durations.train,
        )

    def kill(self) -> None:
        """Nothing to end."""


class WaitingPool:
    """Replaces a `ProducerPool`: real sessions with producers that wait."""

    sessions = ()
    """Of producers whose engines can be checked: none computes anything."""

    def __init__(self, producers: Sequence[WaitingProducer], settings: Any, work: Any) -> None:
        self.desired = self.ready = len(producers)
        self.wanted = None
        self._sessions = [ProducerSession(p, settings, work) for p in producers]  # type: ignore[arg-type]

    @property
    def busy_seconds(self) -> float:
        return sum(session.busy_seconds for session in self._sessions)

    async def refresh_stats(self) -> None:
        for session in self._sessions:
            await session.refresh_stats()

    async def wait_available(self) -> None:
        """All are there from the start."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for session in self._sessions:
                group.create_task(session.serve(lambda reason, prompts: None))


class _NoCheckpoints:
    """Replaces a `CheckpointWriter`."""

    async def write(self, *_: Any, **__: Any) -> None:
        return None


@dataclass(slots=True)
class _Steps:
    """A sink that keeps the reports of steps."""

    reports: list[StepReport] = field(default_factory=list)

    def step(self, report: StepReport) -> None:
        self.reports.append(report)


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulated run did."""

    steps: Sequence[StepReport]
    ledger: Ledger
    group_seconds: Sequence[float]
    """Time of every group that was generated."""
    driver_cpu_seconds: float
    """CPU time of the driver's process."""
    delays: Sequence[float]
    """Seconds by which timers of the driver's event loop fired late."""


async def simulate(
    spec: dict[str, Any], durations: Durations, *, producers: int, slots: int, directory: Path
) -> Simulated:
    """Run a spec to its end in this process; each producer generates `slots` groups at a time."""
    job = GRPOJob.model_validate({"spec": spec})
    options = RunOptions(run_dir=directory, port=0)
    placement = Placement(options, RunPaths.of(options), CheckpointStore(directory, 1))
    prepared = await asyncio.to_thread(prepare, job.spec)
    scorer = Scorer(job.spec.reward, SCORING_PROCESSES)
    await scorer.start()
    drain = asyncio.Event()
    in_flight = job.spec.producers.weight_update.value == "inFlight"
    clients = [
        WaitingProducer(f"producer-{i}", durations, slots, in_flight=in_flight)
        for i in range(producers)
    ]

    async def stacks() -> Path:
        return directory

    async with open_reporter(
        job, options, drain.set, stacks, Console(file=io.StringIO())
    ) as reporter:
        steps = _Steps()
        reporter_step = reporter.step

        def record(report: StepReport) -> None:
            steps.step(report)
            reporter_step(report)

        reporter.step = record  # type: ignore[method-assign]
        context = assemble(job.spec, placement, prepared, None, scorer, reporter, lambda: None)
        _replace(context, WaitingConsumers(durations, job.spec.consumer_processes))
        settings = producer_settings(context, placement, None)
        pool: Any = WaitingPool(clients, settings, producer_work(context))
        engines = EngineCheck(context, pool)
        recorder = StepRecorder(context, pool, engines, None, Ledger())
        loop = TrainingLoop(
            context, pool, StepRunner(context, pool, None, recorder, engines, 0), None, drain
        )
        delays: list[float] = []
        background = [asyncio.create_task(pool.run()), asyncio.create_task(_watch(delays))]
        began = time.process_time()
        try:
            await loop.run()
            cpu = time.process_time() - began
        finally:
            context.buffer.close()
            for task in background:
                task.cancel()
            await asyncio.wait(background)
            await scorer.close()
    seconds = [s for client in clients for s in client.generated]
    return Simulated(steps.reports, loop.ledger, seconds, cpu, delays)


def _replace(context: RunContext, consumers: Any) -> None:
    """Put simulated consumers into a run that is assembled."""
    context.consumers = consumers
    context.checkpoints = _NoCheckpoints()  # type: ignore[assignment]
    context.publisher = WeightPublisher(consumers.weights, context.changed, context.buffer.loaded)


async def _watch(delays: list[float], interval: float = 0.02) -> None:
    """Record how late a timer fires."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + interval
        await asyncio.sleep(interval)
        delays.append(max(0.0, loop.time() - due))
