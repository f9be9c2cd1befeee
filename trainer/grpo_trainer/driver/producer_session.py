"""Serving one incarnation of a producer: prompts and weights go to it, rollouts come back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from ray.exceptions import RayError

from grpo_trainer.messages import GenerationRequest, Prompt, Rollout, ScoredGroup
from grpo_trainer.pipeline import ChangeSignal, Lease, RolloutBuffer
from grpo_trainer.rollout.producer import ProducerStats

from .broadcast import Subscription
from .evaluation import EvaluationQueue
from .producer_client import ProducerClient, ProducerSettings
from .run_health import RunHealth
from .weight_publisher import WeightPublisher

_log = logging.getLogger(__name__)

OnRollout = Callable[[Lease, Rollout], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, eq=False)
class ProducerWork:
    """The sources and destinations of what producers do."""

    buffer: RolloutBuffer[ScoredGroup]
    prompts: Sequence[Prompt]
    on_rollout: OnRollout
    """Scores a rollout and completes its lease."""
    publisher: WeightPublisher
    evaluations: EvaluationQueue
    changed: ChangeSignal
    """Notified of every change of producers, weights and evaluations."""
    health: RunHealth


class _StopRequestedError(Exception):
    """The producer was asked to stop; the message is the reason."""


class ProducerSession:
    """Keeps one producer busy until it is asked to stop or is lost."""

    def __init__(
        self, client: ProducerClient, settings: ProducerSettings, work: ProducerWork
    ) -> None:
        self.client = client
        self.stats: ProducerStats | None = None
        self.node = ""
        """Ray's id of its node, once it is ready."""
        self._settings = settings
        self._work = work
        self._unanswered: dict[str, Lease] = {}
        """Prompts without a rollout."""
        self._answered = ChangeSignal()
        self._evaluating = False
        self._stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def name(self) -> str:
        return self.client.name

    @property
    def at_work(self) -> bool:
        """Whether it has prompts of the data or of an evaluation."""
        return bool(self._unanswered) or self._evaluating

    @property
    def busy_seconds(self) -> float:
        """Seconds it spent generating or applying weights, as of the last statistics."""
        stats = self.stats
        return 0.0 if stats is None else stats.busy_seconds + stats.apply_seconds

    async def ready(self) -> None:
        """Wait until its engine is built."""
        self.node = (await self.client.ready()).node

    def stop(self, reason: str) -> None:
        """Ask it to stop."""
        if not self._stop.done():
            self._stop.set_result(reason)

    async def refresh_stats(self) -> None:
        """Read how busy it was; a producer that is going down has no statistics."""
        try:
            self.stats = await self.client.stats()
        except (RayError, TimeoutError):
            _log.debug("%s: no statistics, it may be going down", self.name)

    async def serve(self, on_stop: Callable[[str, int], None]) -> None:
        """Serve until the producer is asked to stop; raises RayError when it is lost.

        A producer that stops gives its unanswered prompts back at once; its finished rollouts are
        still scored. `on_stop` is called in between, with the reason and the number of prompts.
        """
        work = self._work
        subscription = work.publisher.subscribe(self.client)
        async with asyncio.TaskGroup() as scoring:
            try:
                await self._serve_until_stopped(subscription, scoring)
            except* _StopRequestedError as stopped:
                unanswered = tuple(self._unanswered.values())
                work.buffer.requeue(unanswered)
                on_stop(str(stopped.exceptions[0]), len(unanswered))

    async def _serve_until_stopped(
        self, subscription: Subscription, scoring: asyncio.TaskGroup
    ) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work.publisher.follow(subscription))
            group.create_task(self._serve_rollouts(scoring))
            group.create_task(self._serve_evaluations(subscription))
            group.create_task(self._stop_when_terminated())
            raise _StopRequestedError(await self._stop)

    async def _stop_when_terminated(self) -> None:
        await self.client.terminated()
        self.stop("its process received SIGTERM")

    async def _serve_rollouts(self, scoring: asyncio.TaskGroup) -> None:
        settings = self._settings
        async with asyncio.TaskGroup() as group:
            while True:
                await self._answered.wait_for(lambda: self._places >= settings.least_lease)
                leases = await self._work.buffer.lease(
                    self.name, min(settings.microbatch, self._places), settings.microbatch
                )
                if not leases:
                    # The data are used up; a roll back would offer prompts again.
                    await self._work.changed.wait()
                    continue
                self._unanswered |= {lease.id: lease for lease in leases}
                group.create_task(self._roll_out(leases, scoring))

    @property
    def _places(self) -> int:
        """Prompts that the producer may hold beside those it has."""
        return self._settings.most_leases - len(self._unanswered)

    async def _roll_out(self, leases: Sequence[Lease], scoring: asyncio.TaskGroup) -> None:
        requests = [self._request(lease) for lease in leases]
        async for rollout in self.client.rollouts(requests):
            self._work.health.rollout_received()
            lease = self._unanswered.pop(rollout.request_id)
            self._work.buffer.answered(lease)
            self._answered.notify()
            scoring.create_task(self._work.on_rollout(lease, rollout))
        missing = [lease for lease in leases if lease.id in self._unanswered]
        assert not missing, f"{self.name} left {len(missing)} prompts without a rollout"

    def _request(self, lease: Lease) -> GenerationRequest:
        prompt, settings = self._work.prompts[lease.prompt.row], self._settings
        return GenerationRequest(
            request_id=lease.id,
            prompt_ids=prompt.token_ids,
            num_samples=settings.num_samples,
            seed=lease.prompt.seed,
            sampling=settings.sampling,
            row=prompt.environment_row,
        )

    async def _serve_evaluations(self, subscription: Subscription) -> None:
        evaluations = self._work.evaluations
        while True:
            current = await evaluations.next_round(lambda: subscription.version)
            # One sample a prompt: as many rows as a micro-batch of rollouts has.
            claimed = current.claim(self._settings.microbatch * self._settings.num_samples)
            self._evaluating = True
            try:
                async for rollout in self.client.rollouts(claimed):
                    self._work.health.rollout_received()
                    evaluations.complete(current, rollout)
                self._evaluating = False
            finally:
                evaluations.give_back(current, claimed)
