"""The snapshots that consumers publish: by the object store or by broadcast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from grpo_trainer.consumer.records import DeltaReference
from grpo_trainer.transport.plan import Stage

from .ray_calls import ConsumersLostError, call_ranks


class ConsumerWeights:
    """Calls to the exporting rank of each pipeline stage.

    Every method raises ConsumersLostError when a rank is lost or misses its deadline.
    """

    def __init__(self, exporters: Callable[[], Sequence[Any]], call_seconds: float) -> None:
        """`exporters` returns the actors of the current incarnation, one per pipeline stage."""
        self._exporters = exporters
        self._call_seconds = call_seconds

    async def publish(self, version: int) -> list[Any] | None:
        """Put a version into the object store; returns references to its bundles, one per stage.

        Returns None when a later snapshot has replaced it.
        """
        found = await self._call([r.publish.remote(version) for r in self._exporters()])
        return [references[0] for references in found] if found and all(found) else None

    async def fetch(self, version: int) -> list[Any] | None:
        """As `publish`, for a producer that was missed; None also when the consumers are lost."""
        try:
            return await self.publish(version)
        except ConsumersLostError:
            return None  # the training loop learns of it from its own calls

    async def publish_delta(self, version: int) -> list[DeltaReference] | None:
        """Put what has changed since the version before into the object store, one per stage.

        Returns None when the version is to be published in full. The snapshot is not released.
        """
        found = await self._call([r.publish_delta.remote(version) for r in self._exporters()])
        return [deltas[0] for deltas in found] if found and all(found) else None

    async def release_snapshot(self) -> None:
        """Allow the next snapshot to overwrite this one."""
        await self._call([r.release_snapshot.remote() for r in self._exporters()])

    async def open_group(self, size: int, backend: str) -> list[Stage]:
        """Open a broadcast group of `size` members for each pipeline stage."""
        return await self._call([r.open_group.remote(size, backend) for r in self._exporters()])

    async def join_group(self) -> str:
        """Wait until all groups are complete; returns the first fault, or an empty text."""
        return _first(await self._call([r.join_group.remote() for r in self._exporters()]))

    async def send(self, version: int) -> str:
        """Broadcast a version; returns the first fault, or an empty text."""
        return _first(await self._call([r.send.remote(version) for r in self._exporters()]))

    def abort_broadcast(self, version: int) -> None:
        """End the wait of `send` for its receivers."""
        for rank in self._exporters():
            rank.abort_broadcast.remote(version)

    async def _call(self, calls: Sequence[Any]) -> list[Any]:
        return await call_ranks(calls, self._call_seconds)


def _first(faults: Sequence[str]) -> str:
    return next(filter(None, faults), "")
