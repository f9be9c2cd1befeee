"""One broadcast of a weight version to all producers that are ready to receive it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from ray.exceptions import RayError

from grpo_trainer.transport.plan import GroupMember

from .consumer_weights import ConsumerWeights
from .ray_calls import describe

_log = logging.getLogger(__name__)

NO_VERSION = -1


class WeightClient(Protocol):
    """The calls to a producer that carry weights; each has a deadline.

    Raises RayError when the producer is lost and TimeoutError when the deadline passes.
    """

    @property
    def name(self) -> str: ...

    async def load(self, references: Sequence[Any]) -> float:
        """Fetch bundles and apply them; returns the seconds that generation paused."""

    async def join_group(self, members: Sequence[GroupMember]) -> None:
        """Join a broadcast group."""

    async def receive(self, version: int) -> float:
        """Receive a broadcast and apply it; returns the seconds that generation paused."""


@dataclass(slots=True, eq=False)
class Subscription:
    """What is known of one producer's weights."""

    client: WeightClient
    version: int = NO_VERSION
    """The version it has applied."""
    mirrors: bool = True
    """Whether its host copy is that of its version, so that it can apply deltas."""
    apply_seconds: float | None = None
    """Pause of generation for that version."""
    transfer: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while weights are on their way to it."""


OnReceived = Callable[[Subscription, float], None]
"""Called with a producer and the seconds that its generation paused."""


class Broadcast:
    """All subscribed producers as receivers of one group, formed again when they change."""

    def __init__(self, consumers: ConsumerWeights, *, backend: str, width: int) -> None:
        """
        Args:
            backend: `gloo` or `nccl`.
            width: processes of one producer.
        """
        self._consumers = consumers
        self._backend = backend
        self._width = width
        self._members: list[Subscription] = []

    async def send(
        self, version: int, subscriptions: Iterable[Subscription], on_applied: OnReceived
    ) -> None:
        """Send to all producers without a transfer under way.

        `on_applied` is called as each has applied the version. One that failed to receive it has
        lost its weights and must fetch the version.
        """
        async with AsyncExitStack() as held:
            members = [s for s in subscriptions if not s.transfer.locked()]
            for member in members:
                await held.enter_async_context(member.transfer)
            if members and await self._form(members):
                await self._send(version, members, on_applied)

    async def _form(self, members: list[Subscription]) -> bool:
        """Form a group of exactly these members; returns whether there is one."""
        if self._members == members:
            return True
        self._members = []
        size = 1 + self._width * len(members)
        stages = await self._consumers.open_group(size, self._backend)

        async def join(index: int, member: Subscription) -> str:
            rank = 1 + self._width * index
            places = [GroupMember(stage, rank, size, self._backend) for stage in stages]
            try:
                await member.client.join_group(places)
            except (RayError, TimeoutError) as error:
                return f"{member.client.name}: {describe(error)}"
            return ""

        joins = (join(index, member) for index, member in enumerate(members))
        faults = await asyncio.gather(self._consumers.join_group(), *joins)
        if any(faults):
            _log.warning("no broadcast group was formed: %s", _join(faults))
            return False
        self._members = members
        return True

    async def _send(
        self, version: int, members: Sequence[Subscription], on_applied: OnReceived
    ) -> None:
        async def receive(member: Subscription) -> str:
            try:
                on_applied(member, await member.client.receive(version))
            except (RayError, TimeoutError) as error:
                member.version = NO_VERSION
                self._consumers.abort_broadcast(version)
                return f"{member.client.name}: {describe(error)}"
            return ""

        faults = await asyncio.gather(self._consumers.send(version), *map(receive, members))
        if any(faults):
            self._members = []
            _log.warning("version %d was not broadcast to all: %s", version, _join(faults))


def _join(faults: Sequence[str]) -> str:
    return "; ".join(filter(None, faults))
