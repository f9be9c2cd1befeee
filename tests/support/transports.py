"""Weight versions on their way to engines, by either transport, without a driver."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from grpo_trainer.transport.group import WeightSender
from grpo_trainer.transport.plan import GroupMember, Stage
from grpo_trainer.weights import WeightBundle

HOST = "127.0.0.1"
CPU = torch.device("cpu")


class ObjectStore:
    """Passes bundles on, as the object store would."""

    async def deliver(self, engines: Sequence[Any], bundles: Sequence[WeightBundle]) -> None:
        await asyncio.gather(*(engine.load_weights(bundles) for engine in engines))


class Collective:
    """Broadcasts bundles, one stage each, to a group that is created again when engines change."""

    def __init__(self) -> None:
        self._members: list[Any] = []
        self.senders: list[WeightSender] = []

    async def deliver(self, engines: Sequence[Any], bundles: Sequence[WeightBundle]) -> None:
        if self._members != list(engines):
            await self.form(engines, bundles)
        receiving = (engine.receive_weights(bundles[0].version) for engine in engines)
        await asyncio.gather(self.send(bundles), *receiving)

    async def form(self, engines: Sequence[Any], bundles: Sequence[WeightBundle]) -> None:
        size = 1 + len(engines)
        self.senders = [WeightSender(HOST, size, "gloo", CPU) for _ in bundles]
        stages = [
            Stage(HOST, sender.port, bundle.entries)
            for sender, bundle in zip(self.senders, bundles, strict=True)
        ]
        joins = [
            engine.join_group([GroupMember(stage, rank, size, "gloo") for stage in stages])
            for rank, engine in enumerate(engines, 1)
        ]
        await asyncio.gather(*(asyncio.to_thread(s.join) for s in self.senders), *joins)
        self._members = list(engines)

    async def send(self, bundles: Sequence[WeightBundle]) -> None:
        """The senders' side of a broadcast."""
        await asyncio.gather(
            *(
                asyncio.to_thread(sender.send, b.version, b.entries, torch.from_numpy(b.data))
                for sender, b in zip(self.senders, bundles, strict=True)
            )
        )


def writable(bundle: WeightBundle) -> WeightBundle:
    """A copy with a buffer that torch can read."""
    return replace(bundle, data=bundle.data.copy())


class Remote:
    """An engine in a producer actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def join_group(self, members: Sequence[GroupMember]) -> Any:
        return self._actor.join_group.remote(members)

    def receive_weights(self, version: int) -> Any:
        return self._actor.receive_weights.remote(version)
