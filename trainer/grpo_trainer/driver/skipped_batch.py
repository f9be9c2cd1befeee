"""The batch of a step whose gradients are not finite, on disk for debugging."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from grpo_trainer.algorithm.batching import StepBatch

SKIPPED_BATCH = "nonfinite-step.npz"
"""In the run's `logs`; the newest replaces earlier ones."""


def write_skipped_batch(logs: Path, step: int, batch: StepBatch) -> Path:
    """Write all micro-batches of a step; returns the file.

    `numpy.load` reads it: `step`, and for each data-parallel rank R and micro-batch M the arrays of
    `MicroBatch` as `rank-R/micro-batch-M/NAME`.
    """
    arrays = {
        f"rank-{rank}/micro-batch-{index}/{name}": array
        for rank, shard in enumerate(batch.shards)
        for index, micro_batch in enumerate(shard)
        for name, array in asdict(micro_batch).items()
    }
    path = logs / SKIPPED_BATCH
    np.savez_compressed(path, step=np.array(step), **arrays)
    return path
