"""Micro-batches through the stages of a pipeline, by the 1F1B schedule of a plugin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grpo_trainer.algorithm.batching import MicroBatch

from ..backend import DeviceBatch, ResponseLogprobs
from ..head import response_logprobs
from ..parallel_dims import ParallelDims
from .policy import BoostedModel


def run(
    boosted: BoostedModel,
    work: Sequence[DeviceBatch],
    visit: Callable[[DeviceBatch, ResponseLogprobs], Tensor],
    *,
    optimizer: Any = None,
    last_stage: bool,
) -> None:
    """Run micro-batches of one shape in order; with an optimizer also their backward passes.

    `visit` is called on the last stage, where the log-probabilities are, and returns what to
    minimize; the schedule averages it over the micro-batches.
    """
    pending = iter(work)

    def criterion(outputs: Any, _inputs: Any) -> Tensor:
        return visit(next(pending), response_logprobs(outputs.logits))

    if last_stage:
        boosted.head.expect(*work)
    _prepare(boosted.plugin.scheduler, len(work[0].ids), len(work))
    ids = torch.cat([item.ids for item in work])
    with torch.set_grad_enabled(optimizer is not None):
        boosted.plugin.execute_pipeline(
            iter([{"input_ids": ids}]), boosted.model, criterion, optimizer, return_loss=False
        )


def even(shard: Sequence[MicroBatch], dims: ParallelDims) -> list[MicroBatch]:
    """The same micro-batches in one shape, and empty ones up to the number of stages."""
    rows = max(len(batch.lengths) for batch in shard)
    length = max(batch.input_ids.shape[1] for batch in shard)
    padded = [_padded(batch, rows, length) for batch in shard]
    while len(padded) < dims.pipeline_parallel:
        padded.append(replace(padded[0], mask=np.zeros_like(padded[0].mask)))
    return padded


def _padded(batch: MicroBatch, rows: int, length: int) -> MicroBatch:
    """Rows and columns that count nowhere, up to the given shape."""
    below = rows - batch.input_ids.shape[0]
    wide = ((0, below), (0, length - batch.input_ids.shape[1]))
    return MicroBatch(
        input_ids=np.pad(batch.input_ids, wide),
        lengths=np.pad(batch.lengths, (0, below)),
        mask=np.pad(batch.mask, wide),
        old_logprobs=np.pad(batch.old_logprobs, wide),
        advantages=np.pad(batch.advantages, (0, below)),
    )


def _prepare(scheduler: Any, size: int, count: int) -> None:
    """Set this step's number of micro-batches, which the schedule takes for constant."""
    scheduler.microbatch_size = size
    scheduler.num_microbatches = count
    scheduler.last_batch_size = None
