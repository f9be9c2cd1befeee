"""The producers of a run: as many as there is room for and the run wants, kept alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray._private.state import state as ray_state
from ray.exceptions import RayError, RayTaskError

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.rollout.producer import Producer

from .consumers import describe
from .producer_link import ProducerLink, ProducerSettings, Work
from .ray_session import PRODUCER
from .weight_registry import NO_VERSION, WeightRegistry

_log = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 1.0
LAST_BACKOFF_SECONDS = 60.0
MAX_START_FAILURES = 5
"""Starts in a row that may fail before the run gives up."""
NODES_SECONDS = 0.5
"""Between two looks at the nodes of the cluster: Ray tells nobody when one comes or goes."""


@dataclass(frozen=True, slots=True)
class ClusterCapacity:
    """Where producers can be."""

    places: int
    """Units of the producers' resource on nodes that are to stay."""
    leaving: frozenset[str]
    """Nodes that were told to go, by Ray's id."""


@dataclass(frozen=True, slots=True)
class PoolEvents:
    """Whom the pool tells what."""

    changed: Callable[[], None]
    """A producer came up or went down, or their number changed."""
    restarted: Callable[[], None]
    """One has to start again."""
    told: Callable[[str], None]
    """Something worth a line."""


class ProducerPool:
    """One producer for each unit of the resource `grpo_producer`, or as many as are wanted.

    Each has a life of its own: it starts, follows the weights, serves rollouts and evaluations.
    When it dies its prompts go back, and it starts again if there still is room for it. One whose
    process or node is told to go gives its prompts back while it still lives.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        work: Work,
        events: PoolEvents,
        *,
        limit: int | None = None,
    ) -> None:
        """
        Args:
            limit: producers to begin with, where there are more places than are wanted at first;
                None has one in every place.
        """
        self._settings = settings
        self._work = work
        self._events = events
        self._limit = limit
        self._up: dict[str, ProducerLink] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._busy_before = 0.0
        self._places = 0
        self.wanted: int | None = None
        """Producers that would keep the consumers busy, once that is known."""

    @property
    def board(self) -> WeightRegistry:
        """Where weights and evaluations are put up."""
        return self._work.board

    @property
    def desired(self) -> int:
        """Producers there should be."""
        return self._places if self._limit is None else min(self._places, self._limit)

    @property
    def ready(self) -> int:
        """Producers that are up."""
        return len(self._up)

    @property
    def links(self) -> tuple[ProducerLink, ...]:
        """Producers that are up."""
        return tuple(self._up.values())

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
                self._look(await asyncio.to_thread(producer_room))
                for name in self._missing():
                    self._lives[name] = group.create_task(self._keep_alive(name))
                await asyncio.sleep(NODES_SECONDS)

    def want(self, count: int) -> None:
        """So many producers would keep the consumers busy: have them, or ask for them."""
        if count == self.wanted:
            return
        if count != self.ready:
            self._events.told(f"{count} producers wanted, {self.ready} ready")
        self.wanted = count
        if self._limit is not None:
            self._limit = count
        self._events.changed()

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

    def _look(self, room: ClusterCapacity) -> None:
        """Follow the room and the wish: stop what is on a leaving node, and what is too many."""
        if room.places != self._places:
            _log.info("room for %d producers, was %d", room.places, self._places)
            self._places = room.places
            self._events.changed()
        for link in self._up.values():
            if link.node in room.leaving:
                link.stop("its node was told to go")
        living = [name for name, life in self._lives.items() if not life.done()]
        for name in living[self._limit :] if self._limit is not None else ():
            if name in self._up:
                self._up[name].stop("fewer producers are wanted")
            else:
                self._lives[name].cancel()

    def _missing(self) -> list[str]:
        """Names for producers that there should be and that do not live yet."""
        self._lives = {name: life for name, life in self._lives.items() if not life.done()}
        free = (f"producer-{i}" for i in range(self.desired + len(self._lives)))
        fresh = [name for name in free if name not in self._lives]
        return fresh[: max(0, self.desired - len(self._lives))]

    async def _keep_alive(self, name: str) -> None:
        failures, told = 0, False
        while True:
            link = ProducerLink(name, self._create(name), self._settings, self._work)
            try:
                await self._live(link)
                told = True
            except* (RayError, TimeoutError) as group:
                error = _first(group)
                if isinstance(error, RayTaskError) and isinstance(error.cause, ValueError):
                    raise InvalidInputError(f"{name}: {error.cause}") from error
                failures, told = 0 if name in self._up else failures + 1, False
                _log.warning("%s went down: %s", name, describe(error))
                if failures >= MAX_START_FAILURES:
                    raise RuntimeError(
                        f"{name} failed to start {failures} times: {describe(error)}"
                    ) from error
            finally:
                await self._bury(link)
            # A node that is going is known by then, and nothing is put on it again.
            backoff = FIRST_BACKOFF_SECONDS * 2**failures
            await asyncio.sleep(min(backoff, LAST_BACKOFF_SECONDS))
            self._look(await asyncio.to_thread(producer_room))
            if self.desired < sum(not life.done() for life in self._lives.values()):
                return
            if not told:
                self._events.restarted()

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
        self._events.changed()
        await self.board.notify()
        await link.serve(lambda reason, count: self._stopped(link, reason, count))

    def _stopped(self, link: ProducerLink, reason: str, prompts: int) -> None:
        self._events.told(f"{link.name} stops: {reason}; {prompts} prompts go back")
        self._gone(link)

    async def _bury(self, link: ProducerLink) -> None:
        """Give back what a dead producer held."""
        ray.kill(link.actor)
        self._gone(link)
        self._work.buffer.release(link.name)
        await self.board.notify()

    def _gone(self, link: ProducerLink) -> None:
        if self._up.pop(link.name, None) is not None:
            self._busy_before += link.busy_seconds
            self._events.changed()


def producer_room() -> ClusterCapacity:
    """The places of all nodes that are alive, and the nodes that Ray calls draining."""
    leaving = frozenset(ray_state.get_draining_nodes())
    staying = (n for n in ray.nodes() if n["Alive"] and n["NodeID"] not in leaving)
    return ClusterCapacity(
        sum(int(node["Resources"].get(PRODUCER, 0)) for node in staying), leaving
    )


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a nest of groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
