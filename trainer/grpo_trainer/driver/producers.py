"""The producers of a run: as many as the cluster has room for, kept alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.rollout.producer import Producer

from .board import NO_VERSION, Board
from .consumers import describe
from .producer_link import ProducerLink, ProducerSettings, Work
from .ray_session import PRODUCER

_log = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 1.0
LAST_BACKOFF_SECONDS = 60.0
MAX_START_FAILURES = 5
"""Starts in a row that may fail before the run gives up."""
NODES_SECONDS = 2.0
"""Between two looks at the nodes of the cluster: Ray tells nobody when one comes or goes."""


class ProducerPool:
    """One producer for each unit of the resource `grpo_producer`, wherever it is.

    Each has a life of its own: it starts, follows the weights, serves rollouts and evaluations.
    When it dies its prompts go back, and it starts again if there still is room for it.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        work: Work,
        on_change: Callable[[], None],
        on_restart: Callable[[], None],
    ) -> None:
        """
        Args:
            on_change: called when a producer came up or went down, or their number changed.
            on_restart: called when one has to start again.
        """
        self._settings = settings
        self._work = work
        self._on_change = on_change
        self._on_restart = on_restart
        self._up: dict[str, ProducerLink] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._busy_before = 0.0
        self.desired = 0
        """Producers there is room for."""

    @property
    def board(self) -> Board:
        """Where weights and evaluations are put up."""
        return self._work.board

    @property
    def ready(self) -> int:
        """Producers that are up."""
        return len(self._up)

    @property
    def actors(self) -> dict[str, Any]:
        """Producers that are up, by name."""
        return {name: link.actor for name, link in self._up.items()}

    @property
    def busy_seconds(self) -> float:
        """Seconds that producers spent generating or taking weights, dead ones included."""
        return self._busy_before + sum(link.busy_seconds for link in self._up.values())

    @property
    def apply_seconds(self) -> float | None:
        """How long generation stood still for the newest weights, at the slowest producer."""
        known = [p.apply_seconds for p in self._up.values() if p.apply_seconds is not None]
        return max(known, default=None)

    async def run(self) -> None:
        """Keep the producers alive; ends only by being cancelled or by a fault of the run."""
        async with asyncio.TaskGroup() as group:
            while True:
                room = await asyncio.to_thread(producer_room)
                if room != self.desired:
                    _log.info("room for %d producers, was %d", room, self.desired)
                    self.desired = room
                    self._on_change()
                for name in self._missing():
                    self._lives[name] = group.create_task(self._keep_alive(name))
                await asyncio.sleep(NODES_SECONDS)

    async def available(self) -> None:
        """Wait until `min_available` are up."""
        async with asyncio.timeout(self._settings.startup_seconds):
            await self.board.until(lambda: self.ready >= self._settings.min_available)

    async def withdraw_weights(self) -> None:
        """The versions on offer are gone with the consumers; the next one may be an older one."""
        for link in self._up.values():
            link.version = NO_VERSION
        await self.board.withdraw()

    async def refresh_stats(self) -> None:
        """Ask all producers how busy they were."""
        for link in tuple(self._up.values()):
            try:
                await link.refresh_stats()
            except (RayError, TimeoutError):
                _log.debug("%s: no statistics, it may be going down", link.name)

    def kill(self) -> None:
        """End all producers at once."""
        for link in self._up.values():
            ray.kill(link.actor)
        self._up.clear()

    def _missing(self) -> list[str]:
        """Names for producers that there is room for and that do not live yet."""
        self._lives = {name: life for name, life in self._lives.items() if not life.done()}
        free = (f"producer-{i}" for i in range(self.desired + len(self._lives)))
        fresh = [name for name in free if name not in self._lives]
        return fresh[: max(0, self.desired - len(self._lives))]

    async def _keep_alive(self, name: str) -> None:
        failures = 0
        while True:
            link = ProducerLink(name, self._create(name), self._settings, self._work)
            try:
                await self._live(link)
            except* (RayError, TimeoutError) as group:
                error = _first(group)
                if isinstance(error, RayTaskError) and isinstance(error.cause, ValueError):
                    raise InvalidInputError(f"{name}: {error.cause}") from error
                failures = 0 if name in self._up else failures + 1
                _log.warning("%s went down: %s", name, describe(error))
                if failures >= MAX_START_FAILURES:
                    raise RuntimeError(
                        f"{name} failed to start {failures} times: {describe(error)}"
                    ) from error
            finally:
                await self._bury(link)
            if await asyncio.to_thread(producer_room) < len(self._lives):
                return  # its node is gone, and with it the room
            self._on_restart()
            backoff = FIRST_BACKOFF_SECONDS * 2**failures
            await asyncio.sleep(min(backoff, LAST_BACKOFF_SECONDS))

    def _create(self, name: str) -> Any:
        settings = self._settings
        # Unbounded: the engine's queue is bounded by the prompts that we lease to it.
        environment = {"py_executable": str(settings.python)} if settings.python else {}
        actor = ray.remote(Producer).options(
            num_cpus=0,
            num_gpus=settings.gpus,
            resources={PRODUCER: 1},
            max_concurrency=1000,
            runtime_env=environment,
        )
        return actor.remote(settings.engine, settings.backend, name)

    async def _live(self, link: ProducerLink) -> None:
        await link.ready()
        self._up[link.name] = link
        self._on_change()
        await self.board.notify()
        await link.serve()

    async def _bury(self, link: ProducerLink) -> None:
        """Give back what a dead producer held."""
        ray.kill(link.actor)
        if self._up.pop(link.name, None) is not None:
            self._busy_before += link.busy_seconds
            self._on_change()
        self._work.buffer.release(link.name)
        await self.board.notify()


def producer_room() -> int:
    """Units of the producers' resource on all nodes that are alive."""
    return sum(int(node["Resources"].get(PRODUCER, 0)) for node in ray.nodes() if node["Alive"])


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a nest of groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
