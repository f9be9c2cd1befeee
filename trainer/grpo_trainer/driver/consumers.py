"""The training processes as one group: a call goes to all ranks and has a deadline."""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from grpo_trainer.algorithm.batching import MicroBatch, StepBatch
from grpo_trainer.algorithm.totals import LossSums
from grpo_trainer.consumer.actor import PUBLISH, WATCH, Consumer
from grpo_trainer.consumer.parallel_dims import ParallelDims
from grpo_trainer.consumer.records import PolicyOptions, StepResult
from grpo_trainer.messages import Floats

from .checkpoints import TRAINER_STATE, model_file, write_index
from .consumer_weights import ConsumerWeights
from .ray_calls import ConsumersLostError, call_ranks
from .ray_session import CONSUMER


@dataclass(frozen=True, slots=True)
class TrainedStep:
    """One optimizer step, summed over all ranks."""

    sums: LossSums
    gradient_norm: float
    learning_rate: float
    seconds: float
    """Of the slowest rank, weights not included."""
    skipped: bool = False
    """The gradients were not finite, and the weights are unchanged."""
    log_ratios: tuple[tuple[Floats, ...], ...] = ()
    """Of each micro-batch of each shard, [B, L]; empty unless requested."""


class ConsumerGroup:
    """All ranks of one incarnation of the training processes."""

    def __init__(
        self,
        dims: ParallelDims,
        *,
        device: str,
        master_port: int | None,
        startup_seconds: float,
        call_seconds: float,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called when the group has started or has ended."""
        self._on_change = on_change
        self._dims = dims
        self._gpus = 1 if device == "cuda" else 0
        self._master_port = master_port
        self._startup_seconds = startup_seconds
        self._call_seconds = call_seconds
        self._ranks: list[Any] = []
        self._started = False
        self.weights = ConsumerWeights(self._exporters, call_seconds)

    @property
    def ready(self) -> int:
        """Ranks that are ready: all or none."""
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
        actors = [actor.remote() for _ in range(self._dims.world)]
        self._ranks = actors
        meetings = await call_ranks(
            [a.address.remote(self._master_port) for a in actors], self._startup_seconds
        )
        # Neighbouring ranks exchange the most, so they are placed on one node.
        order = sorted(range(len(actors)), key=lambda i: meetings[i].host)
        self._ranks = [actors[i] for i in order]
        directory = str(state) if state is not None else None
        calls = [
            rank.start.remote(options(index), meetings[order[0]], directory)
            for index, rank in enumerate(self._ranks)
        ]
        await call_ranks(calls, self._startup_seconds)
        self._started = True
        self._on_change()

    async def snapshot(self, version: int) -> None:
        """Copy the current weights to host memory as the given version, to be published."""
        await self._call([rank.snapshot.remote(version) for rank in self._ranks])

    async def train(
        self, batch: StepBatch, step: int, *, with_log_ratios: bool = False
    ) -> TrainedStep:
        """Run one optimizer step; afterwards version step + 1 is ready to be published."""
        shards = [ray.put(list(shard)) for shard in batch.shards]
        calls = [
            rank.train.remote(
                shards[self._dims.data_index(i)], batch.denominators, step, with_log_ratios
            )
            for i, rank in enumerate(self._ranks)
        ]
        results: list[StepResult] = await self._call(calls)
        of_shard = {
            self._dims.data_index(i): r for i, r in enumerate(results) if self._dims.reports(i)
        }
        reporting = [of_shard[index] for index in sorted(of_shard)]
        return TrainedStep(
            sums=sum((r.sums for r in reporting), LossSums()),
            gradient_norm=reporting[0].gradient_norm,
            learning_rate=reporting[0].learning_rate,
            seconds=max(r.seconds for r in results),
            skipped=any(r.skipped for r in results),
            log_ratios=tuple(r.log_ratios for r in reporting) if with_log_ratios else (),
        )

    async def logprobs(self, batches: Sequence[MicroBatch]) -> list[Floats]:
        """[B, L] log-probabilities of each micro-batch under the current weights, 0 off its mask.

        Every data-parallel group computes all of them.
        """
        shard = ray.put(list(batches))
        results = await self._call([rank.logprobs.remote(shard) for rank in self._ranks])
        found: list[Floats] = next(r for i, r in enumerate(results) if self._dims.reports(i))
        return found

    async def save(self, directory: Path, step: int) -> None:
        """Write weights and training state of all ranks.

        Raises OSError (ENOSPC) when the disk is full, else as all calls do.
        """
        stages = self._dims.pipeline_parallel
        calls = []
        for index, rank in enumerate(self._ranks):
            file = None
            if self._dims.exports(index):
                file = str(directory / model_file(self._dims.stage(index), stages))
            calls.append(rank.save.remote(file, str(directory / TRAINER_STATE), step))
        try:
            names: Sequence[Sequence[str]] = await self._call(calls)
        except ConsumersLostError as error:
            if _is_disk_full(str(error)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory)) from error
            raise
        write_index(directory, [n for i, n in enumerate(names) if self._dims.exports(i)])

    def kill(self) -> None:
        """End all ranks at once: the rest of a broken group waits for its lost member."""
        for rank in self._ranks:
            ray.kill(rank)
        self._ranks = []
        if self._started:
            self._started = False
            self._on_change()

    def _exporters(self) -> list[Any]:
        """The rank of each pipeline stage that exports its weights."""
        return [r for i, r in enumerate(self._ranks) if self._dims.exports(i)]

    async def _call(self, calls: Sequence[Any]) -> list[Any]:
        return await call_ranks(calls, self._call_seconds)


def _is_disk_full(fault: str) -> bool:
    """Whether a writer of an actor reports a full disk; safetensors and torch have own errors."""
    return any(text in fault for text in ("No space left", "Disk quota", "PytorchStreamWriter"))
