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
    """Run micro-batches, each of its own shape, in order; with an optimizer also backward passes.

    `visit` is called on the last stage, where the log-probabilities are, and returns what to
    minimize; the schedule averages it over the micro-batches.
    """
    pending = iter(work)

    def criterion(outputs: Any, _inputs: Any) -> Tensor:
        return visit(next(pending), response_logprobs(outputs.logits))

    if last_stage:
        boosted.head.expect(*work)
    _give(boosted.plugin.scheduler, work)
    with torch.set_grad_enabled(optimizer is not None):
        boosted.plugin.execute_pipeline(
            iter(()), boosted.model, criterion, optimizer, return_loss=False
        )


def at_least_stages(shard: Sequence[MicroBatch], dims: ParallelDims) -> list[MicroBatch]:
    """The micro-batches, and empty ones up to the number of stages, which the schedule needs."""
    smallest = shard[-1]
    empty = replace(smallest, mask=np.zeros_like(smallest.mask))
    return [*shard, *[empty] * (dims.pipeline_parallel - len(shard))]


def _give(scheduler: Any, work: Sequence[DeviceBatch]) -> None:
    """Replace how the schedule splits one tensor into micro-batches of one shape.

    Each micro-batch keeps its own shape, which stages send along with every tensor.
    """
    pending = iter(work)
    scheduler.load_batch = lambda _data: None
    scheduler.load_micro_batch = lambda: {"input_ids": next(pending).ids}
    scheduler.num_microbatches = len(work)
