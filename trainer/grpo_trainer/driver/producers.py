"""The producers: kept alive, fed with prompts and weights, and asked for evaluations."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.pipeline import Lease, RolloutBuffer
from grpo_trainer.records import (
    GenerationRequest,
    Prompt,
    Rollout,
    SamplingParams,
    ScoredGroup,
)
from grpo_trainer.rollout.engine import EngineOptions
from grpo_trainer.rollout.producer import Producer, ProducerStats

from .consumers import describe
from .ray_session import PRODUCER

_log = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 1.0
LAST_BACKOFF_SECONDS = 60.0
MAX_START_FAILURES = 5
"""Starts in a row that may fail before the run gives up."""
CALLS_AHEAD = 2
"""Micro-batches a producer holds beside the one it works on, so that it never waits for us."""

OnRollout = Callable[[Lease, Rollout], Any]


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """What all producers of a run share."""

    replicas: int
    min_available: int
    backend: str
    engine: EngineOptions
    gpus: int
    sampling: SamplingParams
    num_samples: int
    microbatch: int
    batch: int
    """Prompts that one producer holds at a time."""
    startup_seconds: float
    call_seconds: float


@dataclass(slots=True, eq=False)
class _Producer:
    """One incarnation of a producer."""

    name: str
    actor: Any
    version: int = -1
    stats: ProducerStats | None = None


@dataclass(slots=True, eq=False)
class _Evaluation:
    """Prompts to be answered once each by one weight version."""

    version: int
    waiting: deque[GenerationRequest]
    missing: set[str]
    rollouts: dict[str, Rollout] = field(default_factory=dict)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class ProducerPool:
    """Runs the producers of a run until it is closed.

    Each has a life of its own: start, follow the weights, serve rollouts and evaluations; when it
    dies its prompts go back and it starts again.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        buffer: RolloutBuffer[ScoredGroup],
        prompts: Sequence[Prompt],
        on_rollout: OnRollout,
        on_change: Callable[[], None],
        on_restart: Callable[[], None],
    ) -> None:
        """
        Args:
            on_rollout: coroutine function that scores a rollout and completes its lease.
            on_change: called when a producer came up or went down.
            on_restart: called when one has to start again.
        """
        self._settings = settings
        self._buffer = buffer
        self._prompts = prompts
        self._on_rollout = on_rollout
        self._on_change = on_change
        self._on_restart = on_restart
        self._up: dict[str, _Producer] = {}
        self._changed = asyncio.Condition()
        self._versions: dict[int, list[Any]] = {}
        self._newest = -1
        self._epoch = 0
        self._evaluation: _Evaluation | None = None
        self._busy_before = 0.0
        self.apply_seconds: float | None = None
        """How long generation stood still for the newest weights."""

    @property
    def ready(self) -> int:
        """Producers that are up."""
        return len(self._up)

    @property
    def busy_seconds(self) -> float:
        """Seconds that producers spent generating or taking weights, dead ones included."""
        return self._busy_before + sum(_busy(p) for p in self._up.values())

    async def run(self) -> None:
        """Keep all producers alive; ends only by being cancelled or by a fault of the run."""
        async with asyncio.TaskGroup() as group:
            for index in range(self._settings.replicas):
                group.create_task(self._keep_alive(f"producer-{index}"))

    async def available(self) -> None:
        """Wait until `min_available` are up."""
        async with asyncio.timeout(self._settings.startup_seconds):
            await self._until(lambda: self.ready >= self._settings.min_available)

    async def offer(self, version: int, refs: list[Any]) -> None:
        """Publish a weight version; producers take the newest one between two micro-batches."""
        pinned = self._evaluation.version if self._evaluation else None
        self._versions = {v: r for v, r in self._versions.items() if v == pinned}
        self._versions[version] = refs
        self._newest = version
        await self._notify()

    async def forget_weights(self) -> None:
        """The versions on offer are gone with the consumers; the next one may be an older one."""
        self._versions.clear()
        self._newest = -1
        self._epoch += 1
        for producer in self._up.values():
            producer.version = -1
        if self._evaluation is not None:
            self._evaluation.done.set()
        await self._notify()

    async def evaluate(
        self, version: int, requests: Sequence[GenerationRequest]
    ) -> dict[str, Rollout] | None:
        """Answer every request once with exactly this version; None if it went away meanwhile.

        Producers that take part keep the version until the last answer; training goes on.
        """
        assert self._evaluation is None, "one evaluation at a time"
        evaluation = _Evaluation(version, deque(requests), {r.request_id for r in requests})
        self._evaluation = evaluation
        try:
            await self._notify()
            await evaluation.done.wait()
        finally:
            self._evaluation = None
            await self._notify()
        return None if evaluation.missing else evaluation.rollouts

    async def refresh_stats(self) -> None:
        """Ask all producers how busy they were."""
        for producer in tuple(self._up.values()):
            try:
                async with asyncio.timeout(self._settings.call_seconds):
                    producer.stats = await producer.actor.stats.remote()
            except (RayError, TimeoutError):
                _log.debug("%s: no statistics, it may be going down", producer.name)

    def kill(self) -> None:
        """End all producers at once."""
        for producer in self._up.values():
            ray.kill(producer.actor)
        self._up.clear()

    async def _keep_alive(self, name: str) -> None:
        failures = 0
        while True:
            producer = self._create(name)
            try:
                await self._live(producer)
            except* (RayError, TimeoutError) as group:
                error = _first(group)
                if isinstance(error, RayTaskError) and isinstance(error.cause, ValueError):
                    raise InvalidInputError(f"{name}: {error.cause}") from error
                was_up = name in self._up
                failures = 0 if was_up else failures + 1
                _log.warning("%s went down: %s", name, describe(error))
                if failures >= MAX_START_FAILURES:
                    raise RuntimeError(
                        f"{name} failed to start {failures} times: {describe(error)}"
                    ) from error
            finally:
                await self._bury(producer)
            self._on_restart()
            backoff = FIRST_BACKOFF_SECONDS * 2**failures
            await asyncio.sleep(min(backoff, LAST_BACKOFF_SECONDS))

    def _create(self, name: str) -> _Producer:
        settings = self._settings
        # Unbounded: the engine's queue is bounded by the prompts that we lease to it.
        actor = ray.remote(Producer).options(
            num_cpus=0, num_gpus=settings.gpus, resources={PRODUCER: 1}, max_concurrency=1000
        )
        return _Producer(name, actor.remote(settings.engine, settings.backend, name))

    async def _live(self, producer: _Producer) -> None:
        async with asyncio.timeout(self._settings.startup_seconds):
            await producer.actor.ready.remote()
        self._up[producer.name] = producer
        self._on_change()
        await self._notify()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_weights(producer))
            group.create_task(self._serve_rollouts(producer))
            group.create_task(self._serve_evaluations(producer))

    async def _bury(self, producer: _Producer) -> None:
        """Give back what a dead producer held."""
        ray.kill(producer.actor)
        if self._up.pop(producer.name, None) is not None:
            self._busy_before += _busy(producer)
            self._on_change()
        self._buffer.release(producer.name)
        await self._notify()

    def _target(self) -> int:
        """The version that producers should hold: an evaluation keeps its own."""
        if self._evaluation is not None and self._evaluation.version in self._versions:
            return self._evaluation.version
        return self._newest

    async def _follow_weights(self, producer: _Producer) -> None:
        while True:
            await self._until(lambda: self._target() not in (-1, producer.version))
            version, epoch = self._target(), self._epoch
            try:
                async with asyncio.timeout(self._settings.call_seconds):
                    seconds = await producer.actor.load_weights.remote(self._versions[version])
            except RayTaskError as error:
                # The consumers that owned this version are gone; they will offer another one.
                if epoch == self._epoch and version in self._versions:
                    raise
                _log.warning("%s: version %d went away: %s", producer.name, version, error)
                continue
            if epoch == self._epoch:
                producer.version, self.apply_seconds = version, seconds
                self._buffer.loaded(producer.name, version)
                await self._notify()

    async def _serve_rollouts(self, producer: _Producer) -> None:
        settings = self._settings
        calls = min(1 + CALLS_AHEAD, settings.batch // settings.microbatch)
        slots = asyncio.Semaphore(max(1, calls))
        async with asyncio.TaskGroup() as group:
            while True:
                await slots.acquire()
                leases = await self._buffer.lease(producer.name, settings.microbatch)
                if not leases:
                    # Over, unless the run is rolled back: then prompts are there again.
                    slots.release()
                    await self._until_changed()
                    continue
                call = group.create_task(self._roll_out(producer, leases))
                call.add_done_callback(lambda _: slots.release())

    async def _roll_out(self, producer: _Producer, leases: Sequence[Lease]) -> None:
        by_id = {lease.id: lease for lease in leases}
        requests = [
            GenerationRequest(
                request_id=lease.id,
                prompt_ids=self._prompts[lease.ticket.row].token_ids,
                num_samples=self._settings.num_samples,
                seed=lease.ticket.seed,
                sampling=self._settings.sampling,
            )
            for lease in leases
        ]
        async with asyncio.TaskGroup() as scoring:
            async for rollout in self._stream(producer, requests):
                scoring.create_task(self._on_rollout(by_id.pop(rollout.request_id), rollout))
        assert not by_id, f"{producer.name} left {len(by_id)} prompts unanswered"

    async def _stream(self, producer: _Producer, requests: Sequence[GenerationRequest]) -> Any:
        """Rollouts as they finish, each within the deadline of a call."""
        method = producer.actor.rollout.options(num_returns="streaming")
        stream = method.remote(requests)
        while True:
            async with asyncio.timeout(self._settings.call_seconds):
                try:
                    reference = await anext(stream)
                except StopAsyncIteration:
                    return
                rollout = await reference
            yield rollout

    async def _serve_evaluations(self, producer: _Producer) -> None:
        def due() -> bool:
            e = self._evaluation
            return e is not None and bool(e.waiting) and producer.version == e.version

        while True:
            await self._until(due)
            evaluation = self._evaluation
            assert evaluation is not None
            # One sample a prompt: as many rows as a micro-batch of rollouts has.
            size = self._settings.microbatch * self._settings.num_samples
            chunk = [
                evaluation.waiting.popleft() for _ in range(min(size, len(evaluation.waiting)))
            ]
            try:
                async for rollout in self._stream(producer, chunk):
                    evaluation.rollouts[rollout.request_id] = rollout
                    evaluation.missing.discard(rollout.request_id)
            finally:
                evaluation.waiting.extend(r for r in chunk if r.request_id in evaluation.missing)
            if not evaluation.missing:
                evaluation.done.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(condition)

    async def _until_changed(self) -> None:
        async with self._changed:
            await self._changed.wait()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _busy(producer: _Producer) -> float:
    stats = producer.stats
    return 0.0 if stats is None else stats.busy_seconds + stats.apply_seconds


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a nest of groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
