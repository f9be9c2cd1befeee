"""One optimizer step: micro-batches in, gradients applied, sums out; for every backend."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from grpo_trainer.algorithm.batching import MicroBatch
from grpo_trainer.algorithm.loss import LossBatch, policy_loss
from grpo_trainer.algorithm.schedule import learning_rate
from grpo_trainer.algorithm.totals import Denominators, LossSums
from grpo_trainer.messages import Floats
from grpo_trainer.spec import ResolvedAlgorithm

from .backend import DeviceBatch, LossOf, ResponseLogprobs, TrainingBackend
from .records import PolicyOptions, StepResult


def train_step(
    backend: TrainingBackend,
    options: PolicyOptions,
    shard: Sequence[MicroBatch],
    denominators: Denominators,
    step: int,
    *,
    with_log_ratios: bool = False,
) -> StepResult:
    """Train on one rank's shard of a step.

    The loss is divided by global denominators, so neither the micro-batch nor the split over
    processes changes the gradient. Every rank has the same number of micro-batches.
    """
    rate = learning_rate(step, options.total_steps, options.algorithm)
    loss, log_ratios = loss_of(options.algorithm, denominators), list[Floats]()
    if with_log_ratios:
        loss = _recording(loss, log_ratios)
    sums = backend.accumulate(shard, loss)
    norm = backend.apply_gradients(rate)
    return StepResult(
        sums, norm, rate, skipped=not math.isfinite(norm), log_ratios=tuple(log_ratios)
    )


def _recording(loss: LossOf, into: list[Floats]) -> LossOf:
    """The same loss; the log of each token's importance ratio is appended, [B, L] on the host."""

    def recorded(
        item: DeviceBatch, found: ResponseLogprobs, reference: Tensor | None
    ) -> tuple[Tensor, LossSums]:
        into.append((found.logprobs.detach() - item.old_logprobs).float().cpu().numpy())
        return loss(item, found, reference)

    return recorded


def loss_of(algorithm: ResolvedAlgorithm, denominators: Denominators) -> LossOf:
    """The loss of a micro-batch of a step with these denominators."""

    def loss(
        item: DeviceBatch, found: ResponseLogprobs, reference: Tensor | None
    ) -> tuple[Tensor, LossSums]:
        batch = LossBatch(
            logprobs=found.logprobs,
            old_logprobs=item.old_logprobs,
            advantages=item.advantages,
            mask=item.mask,
            reference_logprobs=reference,
            entropy=found.entropy,
        )
        return policy_loss(batch, algorithm, denominators)

    return loss
