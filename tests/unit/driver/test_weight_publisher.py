"""Weight versions: what is available, what producers should apply, and what voids a version.

Aspects: a producer applies the newest version; an evaluation pins one; a version that was replaced
or voided in the middle of a transfer does not count; after a broadcast nobody fetches.
"""

import asyncio
from typing import Any

import pytest
from ray.exceptions import RayTaskError

from grpo_trainer.consumer.records import DeltaReference
from grpo_trainer.driver.broadcast import NO_VERSION
from grpo_trainer.driver.weight_deltas import KEPT, DeltaChain
from grpo_trainer.driver.weight_publisher import WeightPublisher
from grpo_trainer.pipeline import ChangeSignal
from grpo_trainer.weight_delta import WeightsDifferError


class Snapshots:
    """The consumers' side: the newest snapshot can be put into the object store."""

    def __init__(self) -> None:
        self.newest = 0
        self.put: list[int] = []
        self.released: list[int] = []
        self.full = {0}
        """Versions that no delta leads to."""

    async def publish(self, version: int) -> list[Any] | None:
        self.put.append(version)
        return [version] if version == self.newest else None

    fetch = publish

    async def publish_delta(self, version: int) -> list[DeltaReference] | None:
        if version in self.full:
            return None
        return [DeltaReference(version - 1, 3, 100, f"{version - 1}->{version}")]

    async def release_snapshot(self) -> None:
        self.released.append(self.newest)


class Client:
    """A producer that applies versions, at once unless it is held."""

    def __init__(self, name: str = "producer-0") -> None:
        self.name = name
        self.loaded: list[Any] = []
        self.broken: list[Any] = []
        """References whose weights differ from those that were published."""
        self.open = asyncio.Event()
        self.open.set()

    async def load(self, references: list[Any]) -> float:
        await self.open.wait()
        if set(references) & set(self.broken):
            raise RayTaskError("load", "trace", WeightsDifferError("checksum"))
        self.loaded += references
        return 0.5


class Everyone:
    """A broadcast that reaches every producer."""

    async def send(self, version, subscriptions, on_applied) -> None:
        for subscription in subscriptions:
            on_applied(subscription, 0.25)


class Setup:
    def __init__(self, broadcast: Any = None, deltas: DeltaChain | None = None) -> None:
        self.snapshots, self.client, self.changed = Snapshots(), Client(), ChangeSignal()
        self.applied: list[tuple[str, int]] = []
        consumers: Any = self.snapshots
        self.publisher = WeightPublisher(
            consumers, self.changed, lambda *a: self.applied.append(a), broadcast, deltas
        )
        client: Any = self.client
        self.subscription = self.publisher.subscribe(client)
        self.following = asyncio.create_task(self.publisher.follow(self.subscription))

    async def publish(self, version: int, *, keep: bool = False) -> None:
        self.snapshots.newest = version
        await self.publisher.publish(version, keep=keep)
        await self.publisher.background.join()

    async def until_version(self, version: int) -> None:
        async with asyncio.timeout(5):
            await self.changed.wait_for(lambda: self.subscription.version == version)


@pytest.fixture
async def setup():
    made: list[Setup] = []

    def build(broadcast: Any = None, deltas: DeltaChain | None = None) -> Setup:
        made.append(Setup(broadcast, deltas))
        return made[-1]

    yield build
    for one in made:
        one.following.cancel()


async def test_a_producer_applies_each_new_version(setup) -> None:
    run = setup()
    for version in range(3):
        await run.publish(version)
        await run.until_version(version)
    assert run.client.loaded == [0, 1, 2]
    assert run.applied == [("producer-0", 0), ("producer-0", 1), ("producer-0", 2)]


async def test_a_busy_producer_skips_versions(setup) -> None:
    run = setup()
    run.client.open.clear()
    for version in range(4):
        await run.publish(version)
    run.client.open.set()
    await run.until_version(3)
    assert len(run.client.loaded) <= 2


async def test_an_evaluation_holds_producers_at_its_version_while_newer_ones_come(setup) -> None:
    run = setup()
    await run.publish(1, keep=True)
    run.publisher.pin(1)
    await run.until_version(1)
    await run.publish(2)
    assert run.publisher.target == 1
    run.publisher.unpin()
    await run.until_version(2)


async def test_a_transfer_that_ends_after_a_reset_does_not_count(setup) -> None:
    run = setup()
    run.client.open.clear()
    await run.publish(5)
    await asyncio.sleep(0)
    await run.publisher.reset()
    run.client.open.set()
    await asyncio.sleep(0.01)
    assert run.subscription.version == NO_VERSION
    assert run.applied == []
    await run.publish(5)
    await run.until_version(5)


async def test_a_reset_voids_every_version(setup) -> None:
    run = setup()
    await run.publish(3)
    await run.until_version(3)
    await run.publisher.reset()
    assert run.publisher.target == NO_VERSION
    assert run.publisher.applied_versions == {"producer-0": NO_VERSION}


async def test_after_a_broadcast_to_all_no_version_goes_through_the_object_store(setup) -> None:
    run = setup(Everyone())
    await run.publish(0)
    await run.publish(1)
    assert run.publisher.applied_versions == {"producer-0": 1}
    assert (run.snapshots.put, run.snapshots.released) == ([], [0, 1])
    assert run.publisher.apply_seconds == 0.25


async def test_no_broadcast_takes_producers_from_the_version_of_an_evaluation(setup) -> None:
    run = setup(Everyone())
    await run.publish(0, keep=True)
    run.publisher.pin(0)
    await run.publish(1)
    assert run.publisher.applied_versions == {"producer-0": 0}
    run.publisher.unpin()
    await run.until_version(1)


async def test_after_the_first_version_a_producer_fetches_deltas_alone(setup) -> None:
    run = setup(deltas=DeltaChain())
    for version in range(3):
        await run.publish(version)
        await run.until_version(version)
    assert run.client.loaded == [0, "0->1", "1->2"]
    assert (run.snapshots.put, run.snapshots.released) == ([0], [1, 2])
    assert run.publisher.delta_share == 0.03


async def test_a_busy_producer_applies_the_deltas_that_it_missed(setup) -> None:
    run = setup(deltas=DeltaChain())
    await run.publish(0)
    await run.until_version(0)
    run.client.open.clear()
    await run.publish(1)
    await asyncio.sleep(0)
    await run.publish(2)
    await run.publish(3)
    run.client.open.set()
    await run.until_version(3)
    assert run.client.loaded[-2:] == ["1->2", "2->3"]
    assert run.snapshots.put == [0]


async def test_a_producer_that_missed_too_many_versions_fetches_a_full_one(setup) -> None:
    run = setup(deltas=DeltaChain())
    await run.publish(0, keep=True)
    run.publisher.pin(0)
    await run.until_version(0)
    for version in range(1, KEPT + 2):
        await run.publish(version)
    assert run.snapshots.put == [0, KEPT + 1]
    run.publisher.unpin()
    await run.until_version(KEPT + 1)
    assert run.client.loaded == [0, KEPT + 1]


async def test_a_producer_whose_weights_differ_fetches_a_full_version_and_is_counted(setup) -> None:
    run = setup(deltas=DeltaChain())
    await run.publish(0)
    await run.until_version(0)
    run.client.broken = ["0->1"]
    await run.publish(1)
    await run.until_version(1)
    assert run.client.loaded == [0, 1]
    assert run.publisher.differences == 1
    await run.publish(2)
    await run.until_version(2)
    assert run.client.loaded[-1] == "1->2"


async def test_after_a_reset_no_delta_of_before_is_applied(setup) -> None:
    run = setup(deltas=DeltaChain())
    for version in range(3):
        await run.publish(version)
        await run.until_version(version)
    await run.publisher.reset()
    run.snapshots.full = {1}
    await run.publish(1)
    await run.until_version(1)
    assert run.client.loaded[-1] == 1
