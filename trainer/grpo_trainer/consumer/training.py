"""One optimizer step: micro-batches in, gradients applied, sums out."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grpo_trainer.algorithm.batching import MicroBatch
from grpo_trainer.algorithm.logprobs import token_logprobs
from grpo_trainer.algorithm.loss import LossBatch, policy_loss
from grpo_trainer.algorithm.totals import Denominators, LossSums

from .policy import Policy


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one rank says of a step."""

    sums: LossSums
    """Of this rank's shard; zero on ranks that see no logits."""
    gradient_norm: float
    learning_rate: float
    skipped: bool = False
    """Whether the weights are as before, for gradients that are not finite."""
    seconds: float = 0.0


@dataclass(slots=True)
class _Work:
    """A micro-batch on its way through the model."""

    ids: Tensor
    mask: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    reference: Tensor | None = None


def train_step(
    policy: Policy, shard: Sequence[MicroBatch], denominators: Denominators, step: int
) -> StepResult:
    """Train on one rank's shard of a step.

    The loss is divided by global denominators, so neither the micro-batch nor the split over
    processes changes the gradient. Every rank has the same number of micro-batches.
    """
    rate = policy.set_learning_rate(step)
    run = _pipelined if policy.options.layout.pipeline_parallel > 1 else _accumulated
    sums = run(policy, shard, denominators)
    norm = policy.apply_gradients()
    return StepResult(sums, norm, rate, policy.skipped)


def _load(policy: Policy, batch: MicroBatch) -> _Work:
    def move(array: NDArray[Any]) -> Tensor:
        # Arrays from the object store are read-only, which torch.from_numpy does not respect.
        return torch.from_numpy(array.copy()).to(policy.device)

    return _Work(
        ids=move(batch.input_ids),
        mask=move(batch.mask),
        old_logprobs=move(batch.old_logprobs),
        advantages=move(batch.advantages),
    )


def _accumulated(
    policy: Policy, shard: Sequence[MicroBatch], denominators: Denominators
) -> LossSums:
    """Forward and backward one micro-batch after the other."""
    total = LossSums()
    for index, batch in enumerate(shard):
        item = _load(policy, batch)
        if policy.reference is not None:
            with torch.no_grad():
                logits = policy.logits(policy.reference, item.ids)
                item.reference, _ = response_logprobs(policy, logits, item)
        with _deferred(policy, last=index == len(shard) - 1):
            loss, sums = _loss(policy, policy.logits(policy.model, item.ids), item, denominators)
            policy.booster.backward(loss, policy.optimizer)
        total = total + sums
    return total


def _deferred(policy: Policy, *, last: bool) -> contextlib.AbstractContextManager[Any]:
    if last or not policy.can_defer_sync():
        return contextlib.nullcontext()
    manager: contextlib.AbstractContextManager[Any] = policy.booster.no_sync(
        policy.model, policy.optimizer
    )
    return manager


def _pipelined(policy: Policy, shard: Sequence[MicroBatch], denominators: Denominators) -> LossSums:
    """All micro-batches through the 1F1B schedule at once, padded to one shape."""
    work = [_load(policy, batch) for batch in _even(policy, shard)]
    ids = torch.cat([item.ids for item in work])
    if policy.reference is not None:
        _pipelined_reference(policy, work, ids)
    sums: list[LossSums] = []

    def criterion(outputs: Any, _inputs: Any) -> Tensor:
        # 1F1B runs the micro-batches in order, and averages what it is given over them.
        item = work[len(sums)]
        loss, of_item = _loss(policy, policy.full_vocabulary(outputs.logits), item, denominators)
        sums.append(of_item)
        return loss * len(work)

    _prepare(policy.plugin.scheduler, policy.options.microbatch, len(work))
    policy.booster.execute_pipeline(
        iter([{"input_ids": ids}]), policy.model, criterion, policy.optimizer, return_loss=False
    )
    return sum(sums, LossSums())


def _even(policy: Policy, shard: Sequence[MicroBatch]) -> list[MicroBatch]:
    """Micro-batches of one shape, at least one for each stage."""
    rows, length = policy.options.microbatch, max(b.input_ids.shape[1] for b in shard)
    even = [_padded(batch, rows, length) for batch in shard]
    while len(even) < policy.options.layout.pipeline_parallel:
        even.append(replace(even[0], mask=np.zeros_like(even[0].mask)))
    return even


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


def _pipelined_reference(policy: Policy, work: list[_Work], ids: Tensor) -> None:
    """Fill in the reference log-probabilities, on the last stage, where the logits are."""
    pending = iter(work)

    def criterion(outputs: Any, _inputs: Any) -> Tensor:
        item = next(pending)
        item.reference, _ = response_logprobs(policy, policy.full_vocabulary(outputs.logits), item)
        return torch.zeros((), device=policy.device)

    plugin = policy.reference_plugin
    _prepare(plugin.scheduler, policy.options.microbatch, len(work))
    with torch.no_grad():
        plugin.execute_pipeline(
            iter([{"input_ids": ids}]), policy.reference, criterion, return_loss=False
        )


def _prepare(scheduler: Any, size: int, count: int) -> None:
    """Tell the schedule this step's number of micro-batches, which it takes for constant."""
    scheduler.microbatch_size = size
    scheduler.num_microbatches = count
    scheduler.last_batch_size = None


def response_logprobs(policy: Policy, logits: Tensor, item: _Work) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies [B, L] fp32 of the response tokens, 0 elsewhere.

    The token at position t is predicted by the logits at t - 1, under the sampling distribution.
    """
    options, mask = policy.options, item.mask
    found = token_logprobs(
        logits[:, :-1][mask[:, 1:]],
        item.ids[:, 1:][mask[:, 1:]],
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
    )
    blank = torch.zeros(mask.shape, dtype=torch.float32, device=logits.device)
    return blank.masked_scatter(mask, found.logprobs), blank.masked_scatter(mask, found.entropy)


def _loss(
    policy: Policy, logits: Tensor, item: _Work, denominators: Denominators
) -> tuple[Tensor, LossSums]:
    logprobs, entropy = response_logprobs(policy, logits, item)
    batch = LossBatch(
        logprobs=logprobs,
        old_logprobs=item.old_logprobs,
        advantages=item.advantages,
        mask=item.mask,
        reference_logprobs=item.reference,
        entropy=entropy,
    )
    loss, sums = policy_loss(batch, policy.options.algorithm, denominators)
    # Data-parallel plugins average gradients over their ranks; ours are shares of one sum.
    return loss * policy.options.layout.data_parallel, sums
