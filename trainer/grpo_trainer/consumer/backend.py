"""What a training library has to provide; everything above it is common to all of them.

A backend is one process's part of the model under training: it owns the process group, the model,
the reference policy, the optimizer and the random states. Loss, denominators, learning rate,
batching, publishing and accounting are common code, as is the head that turns hidden states into
log-probabilities (`head`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from grpo_trainer.algorithm.batching import MicroBatch
from grpo_trainer.algorithm.totals import LossSums
from grpo_trainer.spec import ConsumerBackend

from .parallel_dims import ParallelDims
from .records import PolicyOptions, Rendezvous

RENDEZVOUS_SECONDS = 300.0
"""How long processes wait for each other, at the start and in every collective call."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceBatch:
    """A micro-batch of B samples over L positions on the device that trains on it."""

    ids: Tensor
    """[B, L] int64: prompt, completion, padding."""
    mask: Tensor
    """[B, L] bool: the response tokens that count in the loss."""
    old_logprobs: Tensor
    """[B, L] fp32 under the behaviour policy."""
    advantages: Tensor
    """[B] fp32."""

    @classmethod
    def of(cls, batch: MicroBatch, device: torch.device) -> DeviceBatch:
        """Copy a micro-batch to a device."""

        def move(array: Any) -> Tensor:
            # Arrays from the object store are read-only, which torch.from_numpy does not respect.
            return torch.from_numpy(array.copy()).to(device)

        return cls(
            ids=move(batch.input_ids),
            mask=move(batch.mask),
            old_logprobs=move(batch.old_logprobs),
            advantages=move(batch.advantages),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ResponseLogprobs:
    """Log-probabilities and entropies of a micro-batch's response tokens; 0 off the mask."""

    logprobs: Tensor
    """[B, L] fp32 of each token under the sampling distribution; differentiable for the policy."""
    entropy: Tensor
    """[B, L] fp32, in nats; differentiable where the algorithm has an entropy bonus."""


LossOf = Callable[[DeviceBatch, ResponseLogprobs, Tensor | None], tuple[Tensor, LossSums]]
"""Micro-batch, the policy's log-probabilities, the reference policy's ([B, L], without gradient) ->
the micro-batch's share of the step's loss, a differentiable scalar, and its sums.

The shares of all micro-batches and ranks are to be summed. A backend whose gradients are averaged
over data-parallel ranks multiplies the loss by their number; tensor-parallel ranks do not count.
"""


class TrainingBackend(Protocol):
    """One process of the training processes. Calls are made from one thread, on all ranks alike."""

    dims: ParallelDims
    """Where this process stands among the others is `dims` at its rank: which shard it trains on
    (`data_index`), whether it has sums (`reports`), whether it exports weights (`exports`) and
    whether it takes part in gathering them (`joins_export`)."""
    device: torch.device
    module: nn.Module
    """This rank's part of the trained model, as the library holds it."""

    def accumulate(self, shard: Sequence[MicroBatch], loss: LossOf) -> LossSums:
        """Add the gradients of all micro-batches of this rank's shard; returns the sum of the sums.

        Owns forward and backward passes, the deferral of their synchronization and the pipeline
        schedule. Returns empty sums on ranks that see no log-probabilities. Collective.
        """
        ...

    def apply_gradients(self, rate: float) -> float:
        """One optimizer step at a learning rate, with the norm of the gradients clipped.

        Returns the norm before clipping, the same on all ranks, and leaves gradients zeroed. Where
        the norm is not finite, weights and optimizer state are as before, on all ranks. Collective.
        """
        ...

    def logprobs(self, shard: Sequence[MicroBatch], *, reference: bool = False) -> list[Tensor]:
        """[B, L] fp32 of each micro-batch under the policy or the reference policy, no gradients.

        Empty on ranks that see no log-probabilities. Collective.
        """
        ...

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Whole weights of this rank's pipeline stage under their names in the hub's files.

        In working precision, one at a time: a yielded tensor may be overwritten by the next. Of
        tied parameters only the first name appears. Collective over the ranks that `joins_export`
        names: each of them iterates to the end.
        """
        ...

    def save(self, directory: Path, step: int) -> Callable[[], None]:
        """Stage this rank's training state: optimizer, master weights, random states.

        On return the state is staged, and training may continue. The function that is returned
        waits until it is on the disk, in another thread where the caller likes.
        """
        ...

    def load(self, directory: Path) -> None:
        """Restore what `save` wrote; the weights are those of `PolicyOptions.model_path`.

        Raises InvalidInputError when the state is missing or of a layout that cannot be converted.
        """
        ...

    def close(self) -> None:
        """Leave the process group."""
        ...


def open_backend(options: PolicyOptions, meeting: Rendezvous) -> TrainingBackend:
    """Meet the other processes and build this rank's part of the policy. Collective.

    Raises InvalidInputError when the model cannot be loaded or its layout is not supported.
    """
    match options.backend:
        case ConsumerBackend.COLOSSALAI:
            from .colossalai.backend import ColossalAIBackend

            return ColossalAIBackend(options, meeting)
        case ConsumerBackend.FSDP:
            from .fsdp.backend import FsdpBackend

            return FsdpBackend(options, meeting)
