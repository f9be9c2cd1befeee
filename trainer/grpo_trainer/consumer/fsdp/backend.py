"""The training backend of one rank by FSDP2."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from grpo_trainer.algorithm.batching import MicroBatch
from grpo_trainer.algorithm.totals import LossSums
from grpo_trainer.spec import Dtype

from ..backend import DeviceBatch, LossOf, ResponseLogprobs
from ..head import LogprobHead, attach_head, response_logprobs
from ..records import PolicyOptions, Rendezvous
from .checkpointing import StateFiles
from .export import hub_tensors
from .gradients import clip_factor, gradient_norm, make_optimizer, scale_gradients
from .loading import fsdp_modules, join, load_sharded


class FsdpBackend:
    """A model, its optimizer and its reference policy, sharded over the data-parallel ranks.

    With tensor parallelism each layer is split by the plan of its class, and every slice is sharded
    over the ranks that hold the same slice.
    """

    def __init__(self, options: PolicyOptions, meeting: Rendezvous) -> None:
        self.options, self.dims = options, options.dims
        self.device = torch.device(options.device)
        # transformers reads these for its meshes; Ray shows each process only its accelerator.
        world = self.dims.world
        os.environ |= {"RANK": str(options.rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(world)}
        join(options.rank, world, meeting, options.device)
        torch.manual_seed(options.seed)
        mixed = options.dtype is Dtype.BFLOAT16
        self._dtype = torch.bfloat16 if mixed else torch.float32
        self.module = load_sharded(options, options.model_path, torch.float32, mixed=mixed).train()
        self._policy = _Scored(self.module, options, self.device)
        if options.gradient_checkpointing:
            self.module.gradient_checkpointing_enable({"use_reentrant": False})
        self.reference_module: Any = None
        self._reference: _Scored | None = None
        if options.reference_path is not None:
            frozen = load_sharded(options, options.reference_path, self._dtype, mixed=False)
            self.reference_module = frozen.eval().requires_grad_(False)
            self._reference = _Scored(frozen, options, self.device)
        self.optimizer = make_optimizer(self.module, options.algorithm, options.device)
        self._files = StateFiles(self.module, self.optimizer, options.rank)

    def accumulate(self, shard: Sequence[MicroBatch], loss: LossOf) -> LossSums:
        """Forward and backward of each micro-batch; gradients are reduced with the last one."""
        total = LossSums()
        for index, host in enumerate(shard):
            last = index == len(shard) - 1
            self.module.set_requires_gradient_sync(last)
            self.module.set_is_last_backward(last)
            batch = DeviceBatch.of(host, self.device)
            reference = self._reference.frozen(batch) if self._reference else None
            value, sums = loss(batch, self._policy(batch), reference)
            # FSDP averages gradients over its ranks; ours are shares of one sum.
            torch.autograd.backward(value * self.dims.data_parallel)
            total = total + sums
        return total

    def apply_gradients(self, rate: float) -> float:
        """One optimizer step with clipped gradients; gradients that are not finite change nothing.

        Returns the norm before clipping.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        parameters = [p for p in self.module.parameters() if p.grad is not None]
        norm = gradient_norm(parameters)
        if norm < float("inf"):
            limit = self.options.algorithm.optimizer.max_gradient_norm
            scale_gradients(parameters, clip_factor(norm, limit))
            self.optimizer.step()
        self.optimizer.zero_grad()
        return norm

    def logprobs(self, shard: Sequence[MicroBatch], *, reference: bool = False) -> list[Tensor]:
        """[B, L] fp32 of each micro-batch, without gradients. Collective."""
        scored = self._reference if reference else self._policy
        assert scored is not None
        return [scored.frozen(DeviceBatch.of(batch, self.device)) for batch in shard]

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Whole weights under the Hub's names, in working precision. Collective over all ranks."""
        return hub_tensors(self.module, self._dtype)

    def save(self, directory: Path, step: int) -> Callable[[], None]:
        """Stage the training state; the returned call waits until it is on disk. Collective."""
        return self._files.save(directory, step)

    def load(self, directory: Path) -> None:
        """Restore a training state of any number of ranks. Collective.

        Raises InvalidInputError when the directory has none of this model.
        """
        self._files.load(directory)

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()


class _Scored:
    """A sharded model that returns the log-probabilities of response tokens."""

    def __init__(self, model: Any, options: PolicyOptions, device: torch.device) -> None:
        self._model = model
        vocabulary = model.config.get_text_config().vocab_size

        def logits(ids: Tensor) -> Tensor:
            output: Tensor = model(input_ids=ids, use_cache=False).logits
            return output

        self._logits = logits
        self._head: LogprobHead = attach_head(model, logits, options, vocabulary)
        self._reshard()

    def __call__(self, batch: DeviceBatch) -> ResponseLogprobs:
        """Padding is on the right and attention is causal: no token attends to a padding one."""
        self._head.expect(batch)
        return response_logprobs(self._logits(batch.ids))

    @torch.no_grad()
    def frozen(self, batch: DeviceBatch) -> Tensor:
        """[B, L] log-probabilities without gradient."""
        found = self(batch).logprobs
        self._reshard()
        return found

    def _reshard(self) -> None:
        """Free what stays whole after a forward pass, for the backward pass that does not come."""
        for module in fsdp_modules(self._model):
            module.reshard()
