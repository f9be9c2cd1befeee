"""The driver's end of one producer: weights and prompts go to it, rollouts come from it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.exceptions import RayTaskError

from grpo_trainer.messages import (
    GenerationRequest,
    Prompt,
    Rollout,
    SamplingParams,
    ScoredGroup,
)
from grpo_trainer.pipeline import Lease, RolloutBuffer
from grpo_trainer.rollout.engine import EngineOptions
from grpo_trainer.rollout.producer import ProducerStats
from grpo_trainer.transport.plan import GroupMember

from .weight_registry import NO_VERSION, WeightRegistry

_log = logging.getLogger(__name__)

CALLS_AHEAD = 2
"""Micro-batches a producer holds beside the one it works on, so that it never waits for us."""

OnRollout = Callable[[Lease, Rollout], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """What all producers of a run share."""

    min_available: int
    backend: str
    engine: EngineOptions
    python: Path | None
    """Interpreter of the environment that producers need; None is the one of this process."""
    gpus: int
    sampling: SamplingParams
    num_samples: int
    microbatch: int
    batch: int
    """Prompts that one producer holds at a time."""
    startup_seconds: float
    call_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What producers work on and for."""

    buffer: RolloutBuffer[ScoredGroup]
    prompts: Sequence[Prompt]
    on_rollout: OnRollout
    """Scores a rollout and completes its lease."""
    board: WeightRegistry


class _ToldToStopError(Exception):
    """The producer was told to stop; its message says why."""


class ProducerLink:
    """One incarnation of a producer."""

    def __init__(self, name: str, actor: Any, settings: ProducerSettings, work: Work) -> None:
        self.name = name
        self.actor = actor
        self.version = NO_VERSION
        self.stats: ProducerStats | None = None
        self.apply_seconds: float | None = None
        """How long generation stood still for the newest weights."""
        self.loading = asyncio.Lock()
        """Held while weights are on their way to it."""
        self.node = ""
        """Ray's id of the node it is on, once it is ready."""
        self._settings = settings
        self._work = work
        self._open: dict[str, Lease] = {}
        """Prompts that it has not answered."""
        self._stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def busy_seconds(self) -> float:
        """Seconds it spent generating or taking weights, as far as we were told."""
        stats = self.stats
        return 0.0 if stats is None else stats.busy_seconds + stats.apply_seconds

    async def ready(self) -> None:
        """Wait until its engine is built."""
        async with asyncio.timeout(self._settings.startup_seconds):
            self.node = (await self.actor.ready.remote()).node

    def stop(self, reason: str) -> None:
        """Have it serve no longer."""
        if not self._stop.done():
            self._stop.set_result(reason)

    async def serve(self, on_stop: Callable[[str, int], None]) -> None:
        """Work until the producer is told to stop, or dies, which raises.

        One that is told to stop gives back at once what it has not answered; what it has answered
        is still scored. `on_stop` is called in between, with the reason and the number of prompts.
        """
        async with asyncio.TaskGroup() as scoring:
            try:
                await self._serve_until_stopped(scoring)
            except* _ToldToStopError as told:
                unanswered = tuple(self._open.values())
                self._work.buffer.give_back(unanswered)
                on_stop(str(told.exceptions[0]), len(unanswered))
                await self._work.board.notify()

    async def _serve_until_stopped(self, scoring: asyncio.TaskGroup) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_weights())
            group.create_task(self._serve_rollouts(scoring))
            group.create_task(self._serve_evaluations())
            group.create_task(self._heed_signal())
            raise _ToldToStopError(await self._stop)

    async def _heed_signal(self) -> None:
        """Stop when its process is asked to end."""
        await self.actor.told_to_stop.remote()
        self.stop("its process was asked to end")

    async def refresh_stats(self) -> None:
        """Ask it how busy it was."""
        async with asyncio.timeout(self._settings.call_seconds):
            self.stats = await self.actor.stats.remote()

    async def join_group(self, members: Sequence[GroupMember]) -> None:
        """Have it join a group for broadcasts."""
        async with asyncio.timeout(self._settings.call_seconds):
            await self.actor.join_group.remote(members)

    async def receive(self, version: int) -> None:
        """Have it take part in a broadcast."""
        epoch = self._work.board.epoch
        async with asyncio.timeout(self._settings.call_seconds):
            seconds = await self.actor.receive_weights.remote(version)
        self._took(version, epoch, seconds)

    async def _follow_weights(self) -> None:
        board = self._work.board
        while True:
            await board.until(self._lags)
            async with self.loading:
                if self._lags():  # a broadcast may have come first
                    await self._fetch()
            await board.notify()

    def _lags(self) -> bool:
        return self._work.board.target not in (NO_VERSION, self.version)

    async def _fetch(self) -> None:
        """Have it fetch the version on offer, unless that goes away meanwhile."""
        board = self._work.board
        version, epoch = board.target, board.epoch
        references = await board.references(version)
        if references is None:
            return
        try:
            async with asyncio.timeout(self._settings.call_seconds):
                seconds = await self.actor.load_weights.remote(references)
        except RayTaskError as error:
            if board.on_offer(version, epoch):
                raise
            # Who owned this version is gone; another one will be offered.
            _log.warning("%s: version %d went away: %s", self.name, version, error)
            return
        self._took(version, epoch, seconds)

    def _took(self, version: int, epoch: int, seconds: float) -> None:
        self.apply_seconds = seconds
        if epoch == self._work.board.epoch:
            self.version = version
            self._work.buffer.loaded(self.name, version)

    async def _serve_rollouts(self, scoring: asyncio.TaskGroup) -> None:
        settings = self._settings
        calls = min(1 + CALLS_AHEAD, settings.batch // settings.microbatch)
        slots = asyncio.Semaphore(max(1, calls))
        async with asyncio.TaskGroup() as group:
            while True:
                await slots.acquire()
                leases = await self._work.buffer.lease(self.name, settings.microbatch)
                if not leases:
                    # Over, unless the run is rolled back: then prompts are there again.
                    slots.release()
                    await self._work.board.until_changed()
                    continue
                self._open |= {lease.id: lease for lease in leases}
                call = group.create_task(self._roll_out(leases, scoring))
                call.add_done_callback(lambda _: slots.release())

    async def _roll_out(self, leases: Sequence[Lease], scoring: asyncio.TaskGroup) -> None:
        requests = [
            GenerationRequest(
                request_id=lease.id,
                prompt_ids=self._work.prompts[lease.ticket.row].token_ids,
                num_samples=self._settings.num_samples,
                seed=lease.ticket.seed,
                sampling=self._settings.sampling,
            )
            for lease in leases
        ]
        async for rollout in self._stream(requests):
            lease = self._open.pop(rollout.request_id)
            scoring.create_task(self._work.on_rollout(lease, rollout))
        missing = [lease for lease in leases if lease.id in self._open]
        assert not missing, f"{self.name} left {len(missing)} prompts unanswered"

    async def _stream(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[Rollout]:
        """Rollouts as they finish, each within the deadline of a call."""
        stream = self.actor.rollout.options(num_returns="streaming").remote(requests)
        while True:
            async with asyncio.timeout(self._settings.call_seconds):
                try:
                    reference = await anext(stream)
                except StopAsyncIteration:
                    return
                rollout = await reference
            yield rollout

    async def _serve_evaluations(self) -> None:
        board = self._work.board

        def due() -> bool:
            evaluation = board.evaluation
            return (
                evaluation is not None
                and bool(evaluation.waiting)
                and self.version == evaluation.version
            )

        while True:
            await board.until(due)
            evaluation = board.evaluation
            assert evaluation is not None
            # One sample a prompt: as many rows as a micro-batch of rollouts has.
            claimed = evaluation.claim(self._settings.microbatch * self._settings.num_samples)
            try:
                async for rollout in self._stream(claimed):
                    evaluation.answer(rollout)
            finally:
                evaluation.give_back(claimed)
