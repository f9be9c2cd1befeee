"""A stage's weights as plain tensors, for producers and for checkpoints in the hub's format."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from grpo_trainer.weight_delta import DeltaEncoder, WeightDelta
from grpo_trainer.weights import TensorEntry, WeightBundle, buffer_bytes, layout

from .backend import TrainingBackend


class WeightExporter:
    """Keeps a host copy of one stage's weights, so that training continues while they are sent."""

    def __init__(self, backend: TrainingBackend, rank: int) -> None:
        self._backend = backend
        self._exports = backend.dims.exports(rank)
        self._joins = backend.dims.joins_export(rank)
        self._entries: tuple[TensorEntry, ...] = ()
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self._deltas = DeltaEncoder()
        self.version = -1

    def snapshot(self, version: int) -> None:
        """Copy the current weights to the host buffer. Collective over the ranks that export."""
        if not self._joins:
            return
        if not self._entries:
            self._allocate()
        for entry, (name, tensor) in zip(self._entries, self._backend.tensors(), strict=True):
            assert entry.name == name
            if self._exports:
                self._slot(entry, tensor.dtype).copy_(tensor, non_blocking=True)
        if self._backend.device.type == "cuda":
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
            for name, t in self._backend.tensors()
        )
        if self._exports:
            pinned = self._backend.device.type == "cuda"
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

    def delta(self) -> WeightDelta | None:
        """What has changed since the last call; None where the snapshot is to be sent in full."""
        return self._deltas.encode(self.bundle())

    def save(self, path: Path) -> list[str]:
        """Write the snapshot as a safetensors file and return the names in it."""
        from safetensors.torch import save_file

        tensors = {e.name: self._slot(e, getattr(torch, e.dtype)) for e in self._entries}
        save_file(tensors, str(path), metadata={"format": "pt"})
        path.chmod(0o644)
        return list(tensors)
