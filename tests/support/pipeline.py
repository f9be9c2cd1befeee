"""Consumers, producers and the ways between them as a run has them, step by step."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import ray
import torch
from transformers import AutoModelForCausalLM

from grpo_trainer.algorithm.batching import build_step
from grpo_trainer.driver.assemble import Placement, assemble, delivery_of, producer_pool
from grpo_trainer.driver.checkpoints import CheckpointStore
from grpo_trainer.driver.prepare import prepare
from grpo_trainer.driver.producers import PoolEvents
from grpo_trainer.messages import ScoredGroup
from grpo_trainer.options import RunOptions
from grpo_trainer.reporting import RunPaths
from grpo_trainer.rewards import Scorer
from grpo_trainer.spec import GRPOJob, GRPOJobSpec

SECONDS = 120.0
"""Deadline of every wait; starting an actor takes most of it on a busy machine."""


class Pipeline:
    """A run without its loop: the test says when a step is."""

    def __init__(
        self, spec: GRPOJobSpec, directory: Path, scorer: Scorer, python: Path | None
    ) -> None:
        options = RunOptions(run_dir=directory)
        place = Placement(options, RunPaths.of(options), CheckpointStore(directory, 1))
        self.prepared = prepare(spec)
        nobody: Any = None
        self.parts = assemble(
            spec, place, self.prepared, None, scorer, nobody, on_change=lambda: None
        )
        events = PoolEvents(lambda: None, lambda: None, lambda line: None)
        self.pool = producer_pool(self.parts, place, python, events)
        self.delivery = delivery_of(self.parts, self.pool, place)
        self.groups: list[ScoredGroup] = []
        """All that were trained on."""
        self.put: list[int] = []
        """Versions that went through the object store."""
        self.version = 0
        self._put = self.parts.consumers.publish

    async def start(self) -> None:
        """Bring up the consumers, and send version 0 for whoever comes."""
        consumers = self.parts.consumers

        async def publish(version: int) -> list[Any] | None:
            self.put.append(version)
            return await self._put(version)

        consumers.publish = publish  # type: ignore[method-assign]
        await consumers.start(lambda rank: self.parts.policy(rank, self.prepared.model_path), None)
        await consumers.snapshot(0)
        await self.send(keep=True)

    async def send(self, *, keep: bool = False) -> None:
        """Send the version there is."""
        await self.delivery.send(self.version, keep=keep)

    async def step(self) -> None:
        """Take a batch, train on it, and send what comes of it."""
        parts = self.parts
        batch = await asyncio.wait_for(parts.buffer.take(), SECONDS)
        assert batch is not None
        built = build_step(
            batch.groups,
            data_parallel=1,
            microbatch=parts.spec.batch.train_microbatch_size,
            algorithm=parts.algorithm,
            pad_token_id=self.prepared.pad_token_id,
        )
        await parts.consumers.train(built, batch.step)
        parts.buffer.commit(batch)
        self.groups += batch.groups
        self.version = batch.step + 1
        await self.send()

    async def producers(self, count: int) -> None:
        """Wait until so many are up and have the newest weights."""

        def ready() -> bool:
            links = self.pool.links
            return len(links) == count and all(x.version == self.version for x in links)

        await asyncio.wait_for(self.pool.board.until(ready), SECONDS)

    def pid(self, name: str) -> int:
        """Of a producer's process."""
        return int(ray.get(self.pool.actors[name].ready.remote(), timeout=SECONDS).pid)

    async def model(self) -> Any:
        """The model as the consumers have it, when nothing is under way."""
        model = AutoModelForCausalLM.from_pretrained(self.prepared.model_path)
        references = await self._put(self.version)
        assert references is not None
        (bundle,) = await asyncio.gather(*references)
        targets = model.state_dict()
        for entry, data in bundle.tensors():
            raw = torch.from_numpy(data.copy()).view(getattr(torch, entry.dtype))
            targets[entry.name].copy_(raw.view(entry.shape))
        return model.eval()


@asynccontextmanager
async def pipeline(
    directory: Path,
    producers: dict[str, Any],
    sections: dict[str, Any] | None = None,
    python: Path | None = None,
) -> AsyncIterator[Pipeline]:
    """A pipeline for the block; the number of producers can be changed by `pool.want`.

    `sections` take the place of those of the manifest, `python` runs the producers.
    """
    manifest = {
        "model": {"path": "builtin://tiny", "dtype": "float32", "gradientCheckpointing": False},
        "dataset": {"path": "builtin://addition"},
        "algorithm": {"learningRate": 1e-3, "klCoefficient": 0},
        "reward": {"type": "boxed"},
        "sampling": {"numGenerations": 4, "maxNewTokens": 16, "maxPromptTokens": 16},
        "batch": {
            **{"inferenceBatchSize": 8, "inferenceMicrobatchSize": 4},
            **{"trainBatchSize": 8, "trainMinibatchSize": 8, "trainMicrobatchSize": 16},
        },
        "buffer": {"maxStaleness": 1},
        "producers": {
            **{"replicas": 1, "accelerator": "cpu"},
            "autoscale": {"minReplicas": 1, "maxReplicas": 3},
            **producers,
        },
        "consumers": {"processesPerReplica": 1, "accelerator": "cpu"},
        "stallTimeoutSeconds": 120,
        **(sections or {}),
    }
    spec = GRPOJob.model_validate({"spec": manifest}).spec
    scorer = Scorer(spec.reward, 1)
    await scorer.start()
    made = Pipeline(spec, directory, scorer, python)
    producing = asyncio.create_task(made.pool.run())
    try:
        await made.start()
        yield made
    finally:
        made.parts.buffer.close()
        producing.cancel()
        await asyncio.wait({producing})
        made.pool.kill()
        made.parts.consumers.kill()
        await scorer.close()
