"""A whole run in virtual time: producers that are slow, fail and die, weights that come late, and
a trainer that may lose its steps since the last checkpoint."""

import asyncio
import json
import random
from dataclasses import dataclass
from typing import Any

from grpo_trainer.pipeline import Batch, Lease, Limits, PromptSource, RolloutBuffer
from unit.pipeline.buffers import Buffer, Group

LEASE_SECONDS = 20.0


@dataclass(frozen=True)
class Scenario:
    """What happens, and how often; `timing` seeds everything but the outcome of a group."""

    timing: int = 0
    producers: int = 2
    count: int = 20
    episodes: int = 1
    groups_per_step: int = 3
    capacity: int = 10
    max_staleness: int = 1
    max_steps: int | None = None
    max_attempts: int = 3
    max_lease_attempts: int = 5
    filter_rate: float = 0.0
    failure_rate: float = 0.0
    death_rate: float = 0.0
    slow_rate: float = 0.0
    rollbacks: int = 0
    prefetch: bool = True


@dataclass
class Trained:
    """A step that was trained and never rolled back."""

    batch: Batch[Group]
    state: dict[str, Any]
    """The data's position after it, through JSON."""


class Simulation:
    """Runs a scenario to its end; `steps` then holds what was trained."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.random = random.Random(scenario.timing)
        self.buffer: Buffer = RolloutBuffer(
            PromptSource(scenario.count, scenario.episodes, seed=0),
            Limits(
                groups_per_step=scenario.groups_per_step,
                capacity=scenario.capacity,
                max_staleness=scenario.max_staleness,
                max_steps=scenario.max_steps,
            ),
            max_attempts=scenario.max_attempts,
            lease_seconds=LEASE_SECONDS,
            max_lease_attempts=scenario.max_lease_attempts,
        )
        self.start = json.loads(json.dumps(self.buffer.state_dict()))
        self.steps: list[Trained] = []
        self.usable: set[int] = set()
        """Serials of groups that were kept, and still fresh when they completed."""
        self._version = 0
        self._held: dict[str, int] = {}
        """Weights that each live producer holds; -1 are those of a timeline that was left."""
        self._timeline = 0
        """Grows with every rollback."""
        self._rollbacks_left = scenario.rollbacks
        self._background: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        names = [f"producer-{number}" for number in range(self.scenario.producers)]
        producing = [asyncio.create_task(self._produce(name)) for name in names]
        await self._train()
        await asyncio.gather(*producing)
        await asyncio.gather(*self._background)

    def _seconds(self, low: float = 0.1, high: float = 2.0) -> float:
        return self.random.uniform(low, high)

    def _happens(self, rate: float) -> bool:
        return self.random.random() < rate

    def _keeps(self, serial: int, version: int) -> bool:
        outcome = random.Random(f"{serial}/{version}").random()
        return outcome >= self.scenario.filter_rate

    # Producers

    async def _produce(self, name: str) -> None:
        await self._come_up(name)
        while leases := await self.buffer.lease(name, self.random.randint(1, 6)):
            self._check_bounds()
            work = [asyncio.create_task(self._generate(lease)) for lease in leases]
            if self._happens(self.scenario.death_rate):
                # What it was at still comes in, late and from the dead.
                self._background.update(work)
                await asyncio.sleep(self._seconds(0.0, 1.0))
                del self._held[name]
                self.buffer.release(name)
                await self._come_up(name)
            else:
                await asyncio.gather(*work)

    async def _come_up(self, name: str) -> None:
        await asyncio.sleep(self._seconds())
        self._held[name] = self._version
        self.buffer.loaded(name, self._version)

    async def _generate(self, lease: Lease) -> None:
        group = Group(self._held[lease.producer])
        slow = self._happens(self.scenario.slow_rate)
        await asyncio.sleep(self._seconds() + (2 * LEASE_SECONDS if slow else 0))
        if self._happens(self.scenario.failure_rate):
            self.buffer.fail(lease)
            return
        keep = self._keeps(lease.prompt.serial, group.version)
        fresh = self.buffer.next_step - group.version <= self.scenario.max_staleness
        if self.buffer.complete(lease, group, keep=keep) and keep and fresh:
            self.usable.add(lease.prompt.serial)
        self._check_bounds()

    def _check_bounds(self) -> None:
        in_flight = self.buffer.running + self.buffer.depth
        assert in_flight <= self.scenario.capacity + self.scenario.groups_per_step

    # Trainer

    async def _train(self) -> None:
        take = asyncio.create_task(self.buffer.take())
        while (batch := await take) is not None:
            self._check(batch)
            if self.scenario.prefetch:
                take = asyncio.create_task(self.buffer.take())
            await asyncio.sleep(self._seconds())
            if self._rollbacks_left and self._happens(0.2):
                take.cancel()
                await asyncio.wait([take])
                self._roll_back()
                take = asyncio.create_task(self.buffer.take())
                continue
            self.buffer.commit(batch)
            self._publish(batch.step + 1)
            # The next step is under way when the checkpoint is written.
            await asyncio.sleep(self._seconds())
            self.steps.append(Trained(batch, json.loads(json.dumps(self.buffer.state_dict()))))
            if not self.scenario.prefetch:
                take = asyncio.create_task(self.buffer.take())

    def _check(self, batch: Batch[Group]) -> None:
        assert batch.step == len(self.steps)
        assert 1 <= len(batch.groups) == len(batch.serials) <= self.scenario.groups_per_step
        assert list(batch.serials) == sorted(batch.serials)
        for group in batch.groups:
            assert 0 <= batch.step - group.version <= self.scenario.max_staleness

    def _roll_back(self) -> None:
        self._rollbacks_left -= 1
        self._timeline += 1
        del self.steps[self.random.randint(0, len(self.steps)) :]
        self._held = dict.fromkeys(self._held, -1)
        self.usable = {serial for step in self.steps for serial in step.batch.serials}
        self.buffer.reset(self.steps[-1].state if self.steps else self.start, len(self.steps))
        self._publish(len(self.steps))

    def _publish(self, version: int) -> None:
        self._version = version
        for name in self._held:
            delay = self._seconds(0.0, 3.0)
            loop = asyncio.get_running_loop()
            loop.call_later(delay, self._load, name, version, self._timeline)

    def _load(self, name: str, version: int, timeline: int) -> None:
        # Loads of one producer may overtake each other here, as no real one does.
        outdated = timeline != self._timeline or version < self._held.get(name, version)
        if name in self._held and not outdated:
            self._held[name] = version
            self.buffer.loaded(name, version)
