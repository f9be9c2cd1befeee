"""A stage's weights as plain tensors, for producers and for checkpoints in the hub's format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from grpo_trainer.weights import TensorEntry, WeightBundle, buffer_bytes, layout

from .policy import Policy


def full_tensors(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """Whole parameters and persistent buffers of this rank's stage, under their hub names.

    Collective over the tensor-parallel group. Vocabulary padding is taken off again; of tied
    parameters only the first name appears, as in the files of the hub.
    """
    from colossalai.checkpoint_io.utils import gather_distributed_param
    from colossalai.tensor.padded_tensor import is_padded_tensor, to_unpadded_tensor

    module = policy.module
    for name, parameter in module.named_parameters():
        tensor = gather_distributed_param(parameter, keep_vars=False)
        if is_padded_tensor(tensor):
            tensor = to_unpadded_tensor(tensor)
        yield name, tensor.detach()
    persistent = module.state_dict().keys()
    for name, buffer in module.named_buffers():
        if name in persistent:
            yield name, buffer.detach()


class WeightExporter:
    """Keeps a host copy of one stage's weights, so that training continues while they are sent."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._exports = policy.options.layout.exports(policy.options.rank)
        self._entries: tuple[TensorEntry, ...] = ()
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self.version = -1

    def snapshot(self, version: int) -> None:
        """Copy the current weights to the host buffer. Collective over the exporting group."""
        options = self._policy.options
        if options.layout.data_index(options.rank) != 0:
            return
        if not self._entries:
            self._allocate()
        for entry, (name, tensor) in zip(self._entries, full_tensors(self._policy), strict=True):
            assert entry.name == name
            if self._exports:
                self._slot(entry, tensor.dtype).copy_(tensor, non_blocking=True)
        if self._policy.device.type == "cuda":
            torch.cuda.synchronize()
        self.version = version

    def _allocate(self) -> None:
        """Learn the whole tensors' shapes, one at a time: gathered all at once they may not fit."""
        self._entries = layout(
            (
                name,
                str(t.dtype).removeprefix("torch."),
                tuple(t.shape),
                t.numel() * t.element_size(),
            )
            for name, t in full_tensors(self._policy)
        )
        if self._exports:
            pinned = self._policy.device.type == "cuda"
            size = buffer_bytes(self._entries)
            self._buffer = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)

    def _slot(self, entry: TensorEntry, dtype: torch.dtype) -> Tensor:
        raw = self._buffer[entry.offset : entry.offset + entry.size]
        return raw.view(dtype).view(entry.shape)

    @property
    def entries(self) -> tuple[TensorEntry, ...]:
        """What the buffer holds, once there is a snapshot."""
        return self._entries

    @property
    def buffer(self) -> Tensor:
        """[bytes] the snapshot itself, on the host."""
        return self._buffer

    def bundle(self) -> WeightBundle:
        """The snapshot as a record for the object store; it shares the buffer."""
        return WeightBundle(self.version, self._entries, self._buffer.numpy())

    def save(self, path: Path) -> list[str]:
        """Write the snapshot as a safetensors file and return the names in it."""
        from safetensors.torch import save_file

        tensors = {e.name: self._slot(e, getattr(torch, e.dtype)) for e in self._entries}
        save_file(tensors, str(path), metadata={"format": "pt"})
        path.chmod(0o644)
        return list(tensors)
