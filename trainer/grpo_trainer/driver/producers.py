"""The producers of a run: as many as there are places and the run wants, restarted when lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .cluster_capacity import ClusterCapacity, observe_capacity
from .producer_client import ProducerSettings
from .producer_lifecycle import LifecycleEvents, ProducerLifecycle
from .producer_session import ProducerSession, ProducerWork

_log = logging.getLogger(__name__)

NODES_SECONDS = 0.5
"""Interval between reads of Ray's nodes, which it has no event for."""


@dataclass(frozen=True, slots=True)
class PoolEvents:
    """Callbacks of the pool."""

    changed: Callable[[], None]
    """A producer became ready or is gone, or their desired number changed."""
    restarted: Callable[[], None]
    """A lost producer starts again."""
    message: Callable[[str], None]
    """A line for the user."""


class ProducerPool:
    """One producer for each unit of the resource `grpo_producer`, or as many as are wanted.

    Each has a task that starts it, serves it and restarts it while there is a place for it. One
    whose process or node is about to end gives its prompts back while it is still alive.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        work: ProducerWork,
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
        self._ready: dict[str, ProducerSession] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._busy_before = 0.0
        self._places = 0
        self.wanted: int | None = None
        """Producers that would keep the consumers busy, once that is known."""

    @property
    def desired(self) -> int:
        """Producers that should be running."""
        return self._places if self._limit is None else min(self._places, self._limit)

    @property
    def ready(self) -> int:
        """Producers that are ready."""
        return len(self._ready)

    @property
    def actors(self) -> dict[str, Any]:
        """The ready producers' actors by name."""
        return {name: session.client.actor for name, session in self._ready.items()}

    @property
    def sessions(self) -> tuple[ProducerSession, ...]:
        """Those of the ready producers."""
        return tuple(self._ready.values())

    @property
    def busy_seconds(self) -> float:
        """Seconds that producers spent generating or applying weights, lost ones included."""
        return self._busy_before + sum(s.busy_seconds for s in self._ready.values())

    async def run(self) -> None:
        """Keep the producers running; ends only by cancellation or by an error of the run."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._sync_nodes()
                for name in self._missing():
                    lifecycle = ProducerLifecycle(
                        name, self._settings, self._work, self._lifecycle_events()
                    )
                    self._tasks[name] = group.create_task(lifecycle.run())
                await asyncio.sleep(NODES_SECONDS)

    def scale(self, count: int) -> None:
        """Set the number of producers that would keep the consumers busy."""
        if count == self.wanted:
            return
        if count != self.ready:
            self._events.message(f"{count} producers wanted, {self.ready} ready")
        self.wanted = count
        if self._limit is not None:
            self._limit = count
        self._events.changed()

    async def wait_available(self) -> None:
        """Wait until `min_available` are ready; raises TimeoutError after the startup deadline."""
        async with asyncio.timeout(self._settings.startup_seconds):
            await self._work.changed.wait_for(lambda: self.ready >= self._settings.min_available)

    async def refresh_stats(self) -> None:
        """Read how busy all producers were."""
        for session in tuple(self._ready.values()):
            await session.refresh_stats()

    def kill(self) -> None:
        """End all producers at once."""
        for session in self._ready.values():
            session.client.kill()
        self._ready.clear()

    async def _sync_nodes(self) -> None:
        """Follow the cluster's nodes and the desired number of producers."""
        capacity: ClusterCapacity = await asyncio.to_thread(observe_capacity)
        if capacity.places != self._places:
            _log.info("places for producers: %d, before: %d", capacity.places, self._places)
            self._places = capacity.places
            self._events.changed()
        for session in self._ready.values():
            if session.node in capacity.draining:
                session.stop("its node is draining")
        for name in self._running()[self._limit :] if self._limit is not None else ():
            if name in self._ready:
                self._ready[name].stop("fewer producers are wanted")
            else:
                self._tasks[name].cancel()

    def _running(self) -> list[str]:
        return [name for name, task in self._tasks.items() if not task.done()]

    def _missing(self) -> list[str]:
        """Names for the producers that should be running and are not."""
        self._tasks = {name: self._tasks[name] for name in self._running()}
        free = (f"producer-{i}" for i in range(self.desired + len(self._tasks)))
        fresh = [name for name in free if name not in self._tasks]
        return fresh[: max(0, self.desired - len(self._tasks))]

    def _lifecycle_events(self) -> LifecycleEvents:
        return LifecycleEvents(
            ready=self._on_ready,
            gone=self._on_gone,
            stopping=self._on_stopping,
            restarting=self._events.restarted,
            may_restart=self._may_restart,
        )

    async def _may_restart(self) -> bool:
        await self._sync_nodes()
        return self.desired >= len(self._running())

    def _on_ready(self, session: ProducerSession) -> None:
        self._ready[session.name] = session
        self._events.changed()
        self._work.changed.notify()

    def _on_stopping(self, session: ProducerSession, reason: str, prompts: int) -> None:
        self._events.message(f"{session.name} stops: {reason}; {prompts} prompts requeued")

    def _on_gone(self, session: ProducerSession) -> None:
        if self._ready.pop(session.name, None) is not None:
            self._busy_before += session.busy_seconds
            self._work.publisher.unsubscribe(session.name)
            self._events.changed()
            self._work.changed.notify()
