"""How a weight version gets from the consumers to the producers.

Through the object store every producer fetches it when it comes to it. A broadcast reaches all at
once that are there and at rest; whoever it misses, for whatever reason, fetches it all the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from ray.exceptions import RayError

from grpo_trainer.transport.plan import GroupMember

from .consumers import ConsumerGroup, describe
from .producer_link import ProducerLink
from .producers import ProducerPool
from .weight_registry import NO_VERSION

_log = logging.getLogger(__name__)


class WeightPublisher:
    """Sends versions; one at a time."""

    def __init__(
        self, consumers: ConsumerGroup, pool: ProducerPool, broadcast: Broadcast | None = None
    ) -> None:
        self._consumers = consumers
        self._pool = pool
        self._broadcast = broadcast

    async def send(self, version: int, *, keep: bool) -> float:
        """Send the snapshot that was taken last; returns the seconds until the next may be taken.

        One to `keep` can be fetched after that, too.
        """
        began = time.monotonic()
        reached = self._broadcast is not None and await self._broadcast.send(version)
        references = None
        if reached and not keep:
            await self._consumers.release_snapshot()
        else:
            references = await self._consumers.publish(version)
        seconds = time.monotonic() - began
        await self._pool.board.offer(version, references)
        return seconds


class Broadcast:
    """All producers as receivers of one group, which is made anew when they come or go."""

    def __init__(
        self, consumers: ConsumerGroup, pool: ProducerPool, *, backend: str, width: int
    ) -> None:
        """
        Args:
            backend: `gloo` or `nccl`.
            width: processes of one producer.
        """
        self._consumers = consumers
        self._pool = pool
        self._backend = backend
        self._width = width
        self._members: list[ProducerLink] = []

    async def send(self, version: int) -> bool:
        """Send to all producers at rest; returns whether no producer is without the version."""
        evaluation = self._pool.board.evaluation
        if evaluation is not None and evaluation.version != version:
            return False  # it needs the producers with the weights they have
        async with AsyncExitStack() as held:
            links = [link for link in self._pool.links if not link.loading.locked()]
            for link in links:
                await held.enter_async_context(link.loading)
            if links and await self._formed(links):
                await self._send(version, links)
        links = list(self._pool.links)
        return bool(links) and all(link.version == version for link in links)

    async def _formed(self, links: list[ProducerLink]) -> bool:
        """Whether there is a group of just these."""
        if self._members == links:
            return True
        self._members = []
        size = 1 + self._width * len(links)
        stages = await self._consumers.open_group(size, self._backend)

        async def join(index: int, link: ProducerLink) -> str:
            rank = 1 + self._width * index
            members = [GroupMember(stage, rank, size, self._backend) for stage in stages]
            try:
                await link.join_group(members)
            except (RayError, TimeoutError) as error:
                return f"{link.name}: {describe(error)}"
            return ""

        joins = (join(index, link) for index, link in enumerate(links))
        faults = await asyncio.gather(self._consumers.join_group(), *joins)
        if any(faults):
            _log.warning("no group for broadcasts: %s", _text(faults))
            return False
        self._members = links
        return True

    async def _send(self, version: int, links: Sequence[ProducerLink]) -> None:
        async def receive(link: ProducerLink) -> str:
            try:
                await link.receive(version)
            except (RayError, TimeoutError) as error:
                # It has the old weights, or none: it has to fetch these.
                link.version = NO_VERSION
                self._consumers.abort_broadcast(version)
                return f"{link.name}: {describe(error)}"
            return ""

        faults = await asyncio.gather(self._consumers.send(version), *map(receive, links))
        if any(faults):
            self._members = []
            _log.warning("version %d was not broadcast to all: %s", version, _text(faults))


def _text(faults: Sequence[str]) -> str:
    return "; ".join(filter(None, faults))
