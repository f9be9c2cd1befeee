"""Calls to one producer actor, each with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from grpo_trainer.environments.producing import EnvironmentOptions
from grpo_trainer.messages import GenerationRequest, Rollout, SamplingParams
from grpo_trainer.rollout.engine import EngineOptions
from grpo_trainer.rollout.producer import Producer, ProducerInfo, ProducerStats
from grpo_trainer.spec import Backend
from grpo_trainer.transport.plan import GroupMember

from .ray_session import PRODUCER

BATCHES_AHEAD = 2
"""Micro-batches that a producer holds beside the one it works on, so that it never waits."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings that all producers of a run share."""

    min_available: int
    backend: str
    engine: EngineOptions
    python: Path | None
    """Interpreter of the producers' environment; None is that of this process."""
    gpus: int
    sampling: SamplingParams
    num_samples: int
    microbatch: int
    batch: int
    """Prompts that one producer holds at a time."""
    startup_seconds: float
    call_seconds: float
    environment: EnvironmentOptions | None = None
    """None: single turns."""
    deltas: bool = False
    """Weights arrive as differences."""

    @property
    def most_leases(self) -> int:
        """Prompts that a producer holds at a time. Episodes wait for their environment, too, so
        more of them are needed."""
        if self.environment is not None:
            return self.batch
        return min(self.batch, (1 + BATCHES_AHEAD) * self.microbatch)

    @property
    def least_lease(self) -> int:
        """Prompts that are worth a call: a micro-batch of an engine that computes one at a time,
        which would be smaller else; one where prompts finish and start one by one."""
        one_by_one = self.backend == Backend.VLLM or self.environment is not None
        return 1 if one_by_one else self.microbatch


class ProducerClient:
    """One incarnation of a producer.

    Every call raises RayError when the producer is lost and TimeoutError after its deadline.
    """

    def __init__(self, name: str, settings: ProducerSettings) -> None:
        """Create the actor; it starts when Ray has a place for it."""
        self._settings = settings
        self.name = name
        environment = {"py_executable": str(settings.python)} if settings.python else {}
        # Unbounded concurrency: the prompts leased to a producer bound the engine's queue.
        actor = ray.remote(Producer).options(
            num_cpus=0,
            num_gpus=settings.gpus,
            resources={PRODUCER: 1},
            max_concurrency=1000,
            runtime_env=environment,
        )
        self.actor: Any = actor.remote(
            settings.engine, settings.backend, name, settings.environment, deltas=settings.deltas
        )

    async def ready(self) -> ProducerInfo:
        """Wait until the engine is built."""
        async with asyncio.timeout(self._settings.startup_seconds):
            info: ProducerInfo = await self.actor.ready.remote()
            return info

    async def stats(self) -> ProducerStats:
        """How busy it was."""
        async with asyncio.timeout(self._settings.call_seconds):
            stats: ProducerStats = await self.actor.stats.remote()
            return stats

    async def terminated(self) -> None:
        """Wait until its process receives SIGTERM; without a deadline."""
        await self.actor.stop_requested.remote()

    async def load(self, references: Sequence[Any]) -> float:
        """Fetch bundles and apply them; returns the seconds that generation paused."""
        async with asyncio.timeout(self._settings.call_seconds):
            seconds: float = await self.actor.load_weights.remote(references)
            return seconds

    async def join_group(self, members: Sequence[GroupMember]) -> None:
        """Join a broadcast group."""
        async with asyncio.timeout(self._settings.call_seconds):
            await self.actor.join_group.remote(members)

    async def receive(self, version: int) -> float:
        """Receive a broadcast and apply it; returns the seconds that generation paused."""
        async with asyncio.timeout(self._settings.call_seconds):
            seconds: float = await self.actor.receive_weights.remote(version)
            return seconds

    async def rollouts(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[Rollout]:
        """Rollouts as they finish, each within the deadline of a call."""
        stream = self.actor.rollout.options(num_returns="streaming").remote(requests)
        while True:
            async with asyncio.timeout(self._settings.call_seconds):
                try:
                    reference = await anext(stream)
                except StopAsyncIteration:
                    return
                rollouts: list[Rollout] = await reference
            for rollout in rollouts:
                yield rollout

    def kill(self) -> None:
        """End the actor at once."""
        ray.kill(self.actor)
