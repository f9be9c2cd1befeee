"""The training processes as one: every call goes to all ranks and ends by a deadline."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from grpo_trainer.algorithm.batching import StepBatch
from grpo_trainer.algorithm.totals import LossSums
from grpo_trainer.consumer.actor import PUBLISH, WATCH, Consumer
from grpo_trainer.consumer.parallel_dims import ParallelDims
from grpo_trainer.consumer.policy import PolicyOptions
from grpo_trainer.consumer.training import StepResult
from grpo_trainer.errors import InvalidInputError
from grpo_trainer.transport.plan import Stage

from .checkpoints import TRAINER_STATE, model_file, write_index
from .ray_session import CONSUMER


class ConsumersLostError(RuntimeError):
    """A training process died or missed its deadline: the group has to start again."""


@dataclass(frozen=True, slots=True)
class TrainedStep:
    """A step as all ranks together report it."""

    sums: LossSums
    gradient_norm: float
    learning_rate: float
    seconds: float
    """Of the slowest rank, weights not included."""


class ConsumerGroup:
    """All ranks of one incarnation of the training processes."""

    def __init__(
        self,
        layout: ParallelDims,
        *,
        device: str,
        master_port: int | None,
        startup_seconds: float,
        call_seconds: float,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called when the group came up or went down."""
        self._on_change = on_change
        self._layout = layout
        self._gpus = 1 if device == "cuda" else 0
        self._master_port = master_port
        self._startup_seconds = startup_seconds
        self._call_seconds = call_seconds
        self._ranks: list[Any] = []
        self._started = False

    @property
    def ready(self) -> int:
        """Ranks that are up: all or none."""
        return len(self._ranks) if self._started else 0

    @property
    def actors(self) -> dict[str, Any]:
        """The ranks by name."""
        return {f"consumer-{rank}": actor for rank, actor in enumerate(self._ranks)}

    async def start(self, options: Callable[[int], PolicyOptions], state: Path | None) -> None:
        """Create the actors and build the policy in each.

        Raises ConsumersLostError, or the InvalidInputError of a model or state that does not fit.
        """
        self.kill()
        actor = ray.remote(
            num_cpus=0,
            num_gpus=self._gpus,
            resources={CONSUMER: 1},
            concurrency_groups={PUBLISH: 1, WATCH: 1},
        )(Consumer)
        actors = [actor.remote() for _ in range(self._layout.world)]
        self._ranks = actors
        meetings = await self._all(
            [a.address.remote(self._master_port) for a in actors], self._startup_seconds
        )
        # Neighbouring ranks exchange the most, so they are put on one node.
        order = sorted(range(len(actors)), key=lambda i: meetings[i].host)
        self._ranks = [actors[i] for i in order]
        directory = str(state) if state is not None else None
        calls = [
            rank.start.remote(options(index), meetings[order[0]], directory)
            for index, rank in enumerate(self._ranks)
        ]
        await self._all(calls, self._startup_seconds)
        self._started = True
        self._on_change()

    async def snapshot(self, version: int) -> None:
        """Make the current weights the given version, to be published."""
        await self._all([rank.snapshot.remote(version) for rank in self._ranks])

    async def train(self, batch: StepBatch, step: int) -> TrainedStep:
        """One optimizer step; afterwards version step + 1 is ready to be published."""
        shards = [ray.put(list(shard)) for shard in batch.shards]
        calls = [
            rank.train.remote(shards[self._layout.data_index(i)], batch.denominators, step)
            for i, rank in enumerate(self._ranks)
        ]
        results: list[StepResult] = await self._all(calls)
        reporting = [r for i, r in enumerate(results) if self._layout.reports(i)]
        return TrainedStep(
            sums=sum((r.sums for r in reporting), LossSums()),
            gradient_norm=reporting[0].gradient_norm,
            learning_rate=reporting[0].learning_rate,
            seconds=max(r.seconds for r in results),
        )

    @property
    def exporters(self) -> list[Any]:
        """The rank of each pipeline stage that hands out its weights."""
        return [r for i, r in enumerate(self._ranks) if self._layout.exports(i)]

    async def publish(self, version: int) -> list[Any] | None:
        """References to a version's bundles, one per pipeline stage, in the object store.

        None when a later version was written over it.
        """
        found = await self._all([r.publish.remote(version) for r in self.exporters])
        return [refs[0] for refs in found] if found and all(found) else None

    async def fetch(self, version: int) -> list[Any] | None:
        """As `publish`, for a version that was sent before; None when the consumers are lost."""
        try:
            return await self.publish(version)
        except ConsumersLostError:
            return None  # the loop hears of it from its own calls

    async def release_snapshot(self) -> None:
        """Allow the next snapshot, as this one was sent."""
        await self._all([r.release_snapshot.remote() for r in self.exporters])

    async def open_group(self, size: int, backend: str) -> list[Stage]:
        """Begin a group of so many members for each pipeline stage."""
        return await self._all([r.open_group.remote(size, backend) for r in self.exporters])

    async def join_group(self) -> str:
        """Wait until all groups are complete; returns what went wrong, or nothing."""
        return _first(await self._all([r.join_group.remote() for r in self.exporters]))

    async def send(self, version: int) -> str:
        """Broadcast a version; returns what went wrong, or nothing."""
        return _first(await self._all([r.send.remote(version) for r in self.exporters]))

    def abort_broadcast(self, version: int) -> None:
        """Have `send` not wait for its receivers."""
        for rank in self.exporters:
            rank.abort_broadcast.remote(version)

    async def save(self, directory: Path, step: int) -> None:
        """Write weights and training state of all ranks."""
        stages = self._layout.pipeline_parallel
        calls = []
        for index, rank in enumerate(self._ranks):
            file = None
            if self._layout.exports(index):
                file = str(directory / model_file(self._layout.stage(index), stages))
            calls.append(rank.save.remote(file, str(directory / TRAINER_STATE), step))
        names: Sequence[Sequence[str]] = await self._all(calls)
        write_index(directory, [n for i, n in enumerate(names) if self._layout.exports(i)])

    def kill(self) -> None:
        """End all ranks at once: what is left of a broken group waits for its lost member."""
        for rank in self._ranks:
            ray.kill(rank)
        self._ranks = []
        if self._started:
            self._started = False
            self._on_change()

    async def _all(self, calls: Sequence[Any], seconds: float | None = None) -> list[Any]:
        """The results of all ranks; the first fault ends the wait for the others."""
        deadline = self._call_seconds if seconds is None else seconds
        try:
            async with asyncio.timeout(deadline):
                return list(await asyncio.gather(*calls))
        except TimeoutError as error:
            raise ConsumersLostError(f"no answer of the consumers in {deadline:g} s") from error
        except RayError as error:
            if isinstance(error, RayTaskError) and isinstance(error.cause, InvalidInputError):
                raise error.cause from error
            raise ConsumersLostError(describe(error)) from error


def _first(faults: Sequence[str]) -> str:
    return next(filter(None, faults), "")


def describe(error: BaseException) -> str:
    """The last line of an actor's traceback, which is what went wrong."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else repr(error)
