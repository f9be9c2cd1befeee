"""The owner of weight versions: which exist, how they reach producers, who has applied which.

    consumers --snapshot--> publish(version) --broadcast--> subscribed producers
                                 |
                                 +--references--> object store --follow()--> everyone else

A version is *available* from its publication until a newer one replaces it; an evaluation pins the
version it needs. After a roll back all versions are void, and a new epoch begins: the same number
may then mean other weights.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from ray.exceptions import RayTaskError

from .background import BackgroundTask
from .broadcast import NO_VERSION, Broadcast, Subscription, WeightClient
from .change_signal import ChangeSignal
from .consumer_weights import ConsumerWeights

_log = logging.getLogger(__name__)

OnApplied = Callable[[str, int], None]
"""Called with a producer's name and the version it samples with from now on."""


class WeightPublisher:
    """Publishes one version at a time and keeps every subscribed producer at the target version."""

    def __init__(
        self,
        consumers: ConsumerWeights,
        changed: ChangeSignal,
        on_applied: OnApplied,
        broadcast: Broadcast | None = None,
    ) -> None:
        """Without `broadcast` every producer fetches versions from the object store."""
        self._consumers = consumers
        self._changed = changed
        self._on_applied = on_applied
        self._broadcast = broadcast
        self._available: dict[int, list[Any] | None] = {}
        """Version -> references to its bundles; None until a producer asks for them."""
        self._newest = NO_VERSION
        self._pinned = NO_VERSION
        self._epoch = 0
        self._fetching = asyncio.Lock()
        self._subscriptions: dict[str, Subscription] = {}
        self.background = BackgroundTask()
        """The publication under way."""
        self.publish_seconds: float | None = None
        """Time until the snapshot of the newest version was released."""

    @property
    def target(self) -> int:
        """The version that producers should apply, NO_VERSION while there is none."""
        return self._pinned if self._pinned in self._available else self._newest

    @property
    def applied_versions(self) -> dict[str, int]:
        """The version that each subscribed producer has applied, by name."""
        return {name: s.version for name, s in self._subscriptions.items()}

    @property
    def apply_seconds(self) -> float | None:
        """Pause of generation for the newest version, at the slowest producer."""
        known = (s.apply_seconds for s in self._subscriptions.values())
        return max((seconds for seconds in known if seconds is not None), default=None)

    def subscribe(self, client: WeightClient) -> Subscription:
        """Begin to keep a producer up to date; it has no weights yet."""
        self._subscriptions[client.name] = Subscription(client)
        return self._subscriptions[client.name]

    def unsubscribe(self, name: str) -> None:
        """Forget a producer that is gone."""
        self._subscriptions.pop(name, None)

    def pin(self, version: int) -> None:
        """Keep a version available, and make it the target, until `unpin`."""
        self._pinned = version
        self._changed.notify()

    def unpin(self) -> None:
        """Make the newest version the target again."""
        self._pinned = NO_VERSION
        self._changed.notify()

    async def publish(self, version: int, *, keep: bool) -> None:
        """Begin to publish the newest snapshot, after the publication that still runs.

        A version to `keep` stays in the object store, for an evaluation that will pin it.
        """
        await self.background.join()
        self.background.start(self._publish(version, keep=keep))

    async def reset(self) -> None:
        """Void all versions: the consumers that own them are gone."""
        await self.background.cancel()
        self._available.clear()
        self._newest = NO_VERSION
        self._epoch += 1
        for subscription in self._subscriptions.values():
            subscription.version = NO_VERSION
        self._changed.notify()

    async def follow(self, subscription: Subscription) -> None:
        """Apply each target version to a producer; runs until it is cancelled or a call fails."""
        while True:
            await self._changed.wait_for(lambda: self._is_behind(subscription))
            async with subscription.transfer:
                if self._is_behind(subscription):  # a broadcast may have come first
                    await self._fetch(subscription)
            self._changed.notify()

    async def _publish(self, version: int, *, keep: bool) -> None:
        began = time.monotonic()
        broadcast = self._broadcast is not None and await self._send(self._broadcast, version)
        references = None
        if broadcast and not keep:
            await self._consumers.release_snapshot()
        else:
            references = await self._consumers.publish(version)
        self.publish_seconds = time.monotonic() - began
        self._available = {v: r for v, r in self._available.items() if v == self._pinned}
        self._available[version] = references
        self._newest = version
        self._changed.notify()

    async def _send(self, broadcast: Broadcast, version: int) -> bool:
        """Broadcast a version; returns whether every subscribed producer has it."""
        if self._pinned not in (NO_VERSION, version):
            return False  # the evaluation needs the producers at the version they have
        epoch, subscriptions = self._epoch, self._subscriptions.values()
        await broadcast.send(
            version,
            list(subscriptions),
            lambda subscription, seconds: self._record(subscription, version, epoch, seconds),
        )
        return bool(subscriptions) and all(s.version == version for s in subscriptions)

    def _is_behind(self, subscription: Subscription) -> bool:
        return self.target not in (NO_VERSION, subscription.version)

    async def _fetch(self, subscription: Subscription) -> None:
        """Apply the target version by way of the object store, unless it becomes unavailable."""
        version, epoch = self.target, self._epoch
        references = await self._references(version)
        if references is None:
            return
        try:
            seconds = await subscription.client.load(references)
        except RayTaskError as error:
            if self._is_available(version, epoch):
                raise
            # Its owner is gone; another version will be published.
            name = subscription.client.name
            _log.warning("%s: version %d became unavailable: %s", name, version, error)
            return
        self._record(subscription, version, epoch, seconds)

    async def _references(self, version: int) -> list[Any] | None:
        """References to a version's bundles; None when a newer snapshot has replaced it."""
        async with self._fetching:
            epoch = self._epoch
            references = self._available.get(version)
            if references is None and version in self._available:
                references = await self._consumers.fetch(version)
                if self._is_available(version, epoch):
                    self._settle(version, references)
            return references

    def _settle(self, version: int, references: list[Any] | None) -> None:
        if references is not None:
            self._available[version] = references
            return
        del self._available[version]
        if self._newest == version:
            self._newest = NO_VERSION

    def _is_available(self, version: int, epoch: int) -> bool:
        return epoch == self._epoch and version in self._available

    def _record(self, subscription: Subscription, version: int, epoch: int, seconds: float) -> None:
        subscription.apply_seconds = seconds
        if epoch == self._epoch:
            subscription.version = version
            self._on_applied(subscription.client.name, version)
