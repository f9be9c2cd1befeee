"""Training by ColossalAI's Booster."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from grpo_trainer.algorithm.batching import MicroBatch
from grpo_trainer.algorithm.totals import LossSums

from ..backend import RENDEZVOUS_SECONDS, DeviceBatch, LossOf, ResponseLogprobs
from ..records import PolicyOptions, Rendezvous
from . import pipeline
from .policy import BoostedModel, Policy
from .state import load_state, save_state


class ColossalAIBackend:
    """A `TrainingBackend` with one Booster plugin for each layout: see `plugin_kind`."""

    def __init__(self, options: PolicyOptions, meeting: Rendezvous) -> None:
        _launch(options, meeting)
        self.policy = Policy(options)
        self.dims, self.device = options.dims, self.policy.device
        self.module: nn.Module = self.policy.trained.module
        stage = self.dims.stage(options.rank)
        self._last_stage = stage == self.dims.pipeline_parallel - 1

    def accumulate(self, shard: Sequence[MicroBatch], loss: LossOf) -> LossSums:
        if self.dims.pipeline_parallel > 1:
            return self._pipelined(shard, loss)
        policy, total = self.policy, LossSums()
        for index, batch in enumerate(shard):
            item = DeviceBatch.of(batch, self.device)
            reference = None
            if policy.reference is not None:
                with torch.no_grad():
                    reference = policy.reference.logprobs(item).logprobs
            with self._deferred(last=index == len(shard) - 1):
                value, sums = loss(item, policy.trained.logprobs(item), reference)
                # Plugins average gradients over data-parallel ranks; ours are shares of one sum.
                policy.booster.backward(value * self.dims.data_parallel, policy.optimizer)
            total = total + sums
        return total

    def _deferred(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        policy = self.policy
        if last or not policy.can_defer_sync():
            return contextlib.nullcontext()
        manager: contextlib.AbstractContextManager[Any] = policy.booster.no_sync(
            policy.trained.model, policy.optimizer
        )
        return manager

    def _pipelined(self, shard: Sequence[MicroBatch], loss: LossOf) -> LossSums:
        """All micro-batches at once."""
        policy, work = self.policy, self._stage_work(shard)
        references: list[Tensor] = []
        if policy.reference is not None:
            references = self._pipelined_logprobs(policy.reference, work)
        sums: list[LossSums] = []

        def visit(item: DeviceBatch, found: ResponseLogprobs) -> Tensor:
            reference = references[len(sums)] if references else None
            value, of_item = loss(item, found, reference)
            sums.append(of_item)
            return value * len(work) * self.dims.data_parallel

        optimizer, last = policy.optimizer, self._last_stage
        pipeline.run(policy.trained, work, visit, optimizer=optimizer, last_stage=last)
        return sum(sums, LossSums())

    def _stage_work(self, shard: Sequence[MicroBatch]) -> list[DeviceBatch]:
        whole = pipeline.at_least_stages(shard, self.dims)
        return [DeviceBatch.of(batch, self.device) for batch in whole]

    def _pipelined_logprobs(
        self, boosted: BoostedModel, work: Sequence[DeviceBatch]
    ) -> list[Tensor]:
        """Log-probabilities of each micro-batch on the last stage, nothing on the others."""
        results: list[Tensor] = []

        def visit(_item: DeviceBatch, found: ResponseLogprobs) -> Tensor:
            results.append(found.logprobs)
            return torch.zeros((), device=self.device)

        pipeline.run(boosted, work, visit, last_stage=self._last_stage)
        return results

    def apply_gradients(self, rate: float) -> float:
        return self.policy.apply_gradients(rate)

    @torch.no_grad()
    def logprobs(self, shard: Sequence[MicroBatch], *, reference: bool = False) -> list[Tensor]:
        boosted = self.policy.reference if reference else self.policy.trained
        assert boosted is not None, "there is no reference policy"
        if self.dims.pipeline_parallel > 1:
            return self._pipelined_logprobs(boosted, self._stage_work(shard))[: len(shard)]
        return [boosted.logprobs(DeviceBatch.of(b, self.device)).logprobs for b in shard]

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        from colossalai.checkpoint_io.utils import gather_distributed_param
        from colossalai.tensor.padded_tensor import is_padded_tensor, to_unpadded_tensor

        for name, parameter in self.module.named_parameters():
            tensor = gather_distributed_param(parameter, keep_vars=False)
            if is_padded_tensor(tensor):
                tensor = to_unpadded_tensor(tensor)
            yield name, tensor.detach()
        persistent = self.module.state_dict().keys()
        for name, buffer in self.module.named_buffers():
            if name in persistent:
                yield name, buffer.detach()

    def save(self, directory: Path, step: int) -> Callable[[], None]:
        save_state(self.policy, directory, step)
        return lambda: None

    def load(self, directory: Path) -> None:
        load_state(self.policy, directory)

    def close(self) -> None:
        dist.destroy_process_group()


def _launch(options: PolicyOptions, meeting: Rendezvous) -> None:
    """Join the process group, unless this process is in one already."""
    if dist.is_initialized():
        return
    if options.device == "cpu":
        from .accelerator import install_cpu_accelerator

        install_cpu_accelerator()
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    import colossalai

    colossalai.launch(
        options.rank,
        options.dims.world,
        meeting.host,
        meeting.port,
        seed=options.seed,
        verbose=False,
    )
    # A dead peer must end a collective within minutes, not after the default half hour.
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=RENDEZVOUS_SECONDS), dist.group.WORLD)
