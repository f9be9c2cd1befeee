"""The consumers, producers and weight transport of a run, without its loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import ray
import torch
from transformers import AutoModelForCausalLM

from grpo_trainer.algorithm.batching import build_step
from grpo_trainer.driver.assemble import Placement, assemble, producer_pool
from grpo_trainer.driver.checkpoints import CheckpointStore
from grpo_trainer.driver.prepare import prepare
from grpo_trainer.driver.producers import PoolEvents
from grpo_trainer.messages import ScoredGroup
from grpo_trainer.options import RunOptions
from grpo_trainer.reporting import RunPaths
from grpo_trainer.rewards import Scorer
from grpo_trainer.spec import GRPOJob, GRPOJobSpec

SECONDS = 120.0
"""Deadline of every wait; most of it is for starting an actor on a busy machine."""


class Pipeline:
    """A run without its loop: the test runs each step."""

    def __init__(
        self, spec: GRPOJobSpec, directory: Path, scorer: Scorer, python: Path | None
    ) -> None:
        options = RunOptions(run_dir=directory)
        placement = Placement(options, RunPaths.of(options), CheckpointStore(directory, 1))
        self.prepared = prepare(spec)
        no_reporter: Any = None
        self.context = assemble(
            spec, placement, self.prepared, None, scorer, no_reporter, on_change=lambda: None
        )
        events = PoolEvents(lambda: None, lambda: None, lambda line: None)
        self.pool = producer_pool(self.context, placement, python, events)
        self.groups: list[ScoredGroup] = []
        """All that were trained on."""
        self.put: list[int] = []
        """Versions that went through the object store."""
        self.version = 0
        self._put = self.context.consumers.weights.publish

    async def start(self) -> None:
        """Start the consumers and publish version 0."""
        consumers = self.context.consumers

        async def publish(version: int) -> list[Any] | None:
            self.put.append(version)
            return await self._put(version)

        consumers.weights.publish = publish  # type: ignore[method-assign]
        await consumers.start(
            lambda rank: self.context.policy(rank, self.prepared.model_path), None
        )
        await consumers.snapshot(0)
        await self.publish(keep=True)

    async def publish(self, *, keep: bool = False) -> None:
        """Publish the current version, and wait until it is available."""
        await self.context.publisher.publish(self.version, keep=keep)
        await self.context.publisher.background.join()

    async def step(self) -> None:
        """Take a batch, train on it, and publish the new version."""
        context = self.context
        batch = await asyncio.wait_for(context.buffer.take(), SECONDS)
        assert batch is not None
        micro_batches = build_step(
            batch.groups,
            data_parallel=1,
            microbatch=context.spec.batch.train_microbatch_size,
            algorithm=context.algorithm,
            pad_token_id=self.prepared.pad_token_id,
        )
        await context.consumers.train(micro_batches, batch.step)
        context.buffer.commit(batch)
        self.groups += batch.groups
        self.version = batch.step + 1
        await self.publish()

    async def producers(self, count: int) -> None:
        """Wait until `count` producers are ready and have applied the newest version."""

        def ready() -> bool:
            versions = self.context.publisher.applied_versions
            return len(versions) == count and set(versions.values()) == {self.version}

        await asyncio.wait_for(self.context.changed.wait_for(ready), SECONDS)

    def pid(self, name: str) -> int:
        """Of a producer's process."""
        return int(ray.get(self.pool.actors[name].ready.remote(), timeout=SECONDS).pid)

    async def model(self) -> Any:
        """The model as the consumers have it, while nothing is being published."""
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
    """A pipeline for the block; the number of producers can be changed by `pool.scale`.

    `sections` replace those of the manifest; `python` is the producers' interpreter.
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
        "workerTimeoutSeconds": 120,
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
        made.context.buffer.close()
        producing.cancel()
        await asyncio.wait({producing})
        made.pool.kill()
        made.context.consumers.kill()
        await scorer.close()
