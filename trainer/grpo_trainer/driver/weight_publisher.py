"""The owner of weight versions: which exist, how they reach producers, who has applied which.

    consumers --snapshot--> publish(version) --broadcast--> subscribed producers
                                 |
                                 +--references--> object store --follow()--> everyone else
                                      (a full version, or the deltas that lead to it)

A version is *available* from its publication until a newer one replaces it; an evaluation pins the
version it needs. After a roll back all versions are void, and a new epoch begins: the same number
may then mean other weights.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import RayTaskError

from grpo_trainer.pipeline import ChangeSignal
from grpo_trainer.weight_delta import WeightsDifferError

from .background import BackgroundTask
from .broadcast import NO_VERSION, Broadcast, Subscription, WeightClient
from .consumer_weights import ConsumerWeights
from .weight_deltas import DeltaChain

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class AvailableVersions:
    """The versions that producers can fetch, and the one that they should apply."""

    references: dict[int, list[Any] | None] = field(default_factory=dict)
    """Version -> references to its bundles; None until a producer asks for them."""
    newest: int = NO_VERSION
    pinned: int = NO_VERSION
    epoch: int = 0
    """Rises when all versions become void: the same number may then mean other weights."""

    @property
    def target(self) -> int:
        """The pinned version, else the newest; NO_VERSION while there is none."""
        return self.pinned if self.pinned in self.references else self.newest

    def contains(self, version: int, epoch: int) -> bool:
        """Whether a version that was read in an epoch is still available."""
        return epoch == self.epoch and version in self.references

    def add(self, version: int, references: list[Any] | None) -> None:
        """Add the newest version; it replaces all others but the pinned one."""
        self.references = {v: r for v, r in self.references.items() if v == self.pinned}
        self.references[version] = references
        self.newest = version

    def settle(self, version: int, references: list[Any] | None) -> None:
        """Record what a fetch returned: references, or None for a version that is gone."""
        if references is not None:
            self.references[version] = references
            return
        del self.references[version]
        if self.newest == version:
            self.newest = NO_VERSION

    def clear(self) -> None:
        """Void all versions and begin a new epoch."""
        self.references.clear()
        self.newest = NO_VERSION
        self.epoch += 1


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
        deltas: DeltaChain | None = None,
    ) -> None:
        """Without `broadcast` every producer fetches versions from the object store; with `deltas`
        those that hold an earlier version fetch what has changed."""
        self._consumers = consumers
        self._changed = changed
        self._on_applied = on_applied
        self._broadcast = broadcast
        self._deltas = deltas
        self._available = AvailableVersions()
        self._fetching = asyncio.Lock()
        self._subscriptions: dict[str, Subscription] = {}
        self.background = BackgroundTask()
        """The publication under way."""
        self.publish_seconds: float | None = None
        """Time until the snapshot of the newest version was released."""
        self.differences = 0
        """Times that a producer's weights differed from those that were published."""

    @property
    def target(self) -> int:
        """The version that producers should apply, NO_VERSION while there is none."""
        return self._available.target

    @property
    def applied_versions(self) -> dict[str, int]:
        """The version that each subscribed producer has applied, by name."""
        return {name: s.version for name, s in self._subscriptions.items()}

    @property
    def delta_share(self) -> float | None:
        """Bytes of the newest version over those of a full one; None without deltas."""
        return self._deltas.share if self._deltas is not None else None

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
        self._available.pinned = version
        self._changed.notify()

    def unpin(self) -> None:
        """Make the newest version the target again."""
        self._available.pinned = NO_VERSION
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
        if self._deltas is not None:
            self._deltas.clear()
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
        sent = self._broadcast is not None and await self._send(self._broadcast, version)
        if self._deltas is not None:
            sent = await self._publish_delta(self._deltas, version)
        references = None
        if sent and not keep:
            await self._consumers.release_snapshot()
        else:
            references = await self._consumers.publish(version)
        self.publish_seconds = time.monotonic() - began
        self._available.add(version, references)
        self._changed.notify()

    async def _send(self, broadcast: Broadcast, version: int) -> bool:
        """Broadcast a version; returns whether every subscribed producer has it."""
        if self._available.pinned not in (NO_VERSION, version):
            return False  # the evaluation needs the producers at the version they have
        epoch, subscriptions = self._available.epoch, self._subscriptions.values()
        await broadcast.send(
            version,
            list(subscriptions),
            lambda subscription, seconds: self._record(subscription, version, epoch, seconds),
        )
        return bool(subscriptions) and all(s.version == version for s in subscriptions)

    async def _publish_delta(self, deltas: DeltaChain, version: int) -> bool:
        """Publish what has changed; returns whether that suffices for every producer."""
        deltas.add(version, await self._consumers.publish_delta(version))
        subscriptions = self._subscriptions.values()
        return bool(subscriptions) and all(
            s.mirrors and deltas.between(s.version, version) is not None for s in subscriptions
        )

    def _is_behind(self, subscription: Subscription) -> bool:
        return self.target not in (NO_VERSION, subscription.version)

    async def _fetch(self, subscription: Subscription) -> None:
        """Apply the target version by way of the object store, unless it becomes unavailable."""
        version, epoch = self.target, self._available.epoch
        references = None
        if self._deltas is not None and subscription.mirrors:
            references = self._deltas.between(subscription.version, version)
        if references is None:
            references = await self._references(version)
        if references is None:
            return
        try:
            seconds = await subscription.client.load(references)
        except RayTaskError as error:
            if isinstance(error.cause, WeightsDifferError):
                self._on_difference(subscription, error.cause)
                return
            if self._available.contains(version, epoch):
                raise
            # Its owner is gone; another version will be published.
            name = subscription.client.name
            _log.warning("%s: version %d became unavailable: %s", name, version, error)
            return
        subscription.mirrors = True
        self._record(subscription, version, epoch, seconds)

    def _on_difference(self, subscription: Subscription, error: WeightsDifferError) -> None:
        """The producer keeps the weights that it samples with, and is to fetch a full version."""
        subscription.mirrors = False
        self.differences += 1
        _log.warning("%s fetches a full version: %s", subscription.client.name, error)

    async def _references(self, version: int) -> list[Any] | None:
        """References to a version's bundles; None when a newer snapshot has replaced it."""
        async with self._fetching:
            available, epoch = self._available, self._available.epoch
            references = available.references.get(version)
            if references is None and available.contains(version, epoch):
                references = await self._consumers.fetch(version)
                if available.contains(version, epoch):
                    available.settle(version, references)
            return references

    def _record(self, subscription: Subscription, version: int, epoch: int, seconds: float) -> None:
        subscription.apply_seconds = seconds
        if epoch == self._available.epoch:
            subscription.version = version
            self._on_applied(subscription.client.name, version)
