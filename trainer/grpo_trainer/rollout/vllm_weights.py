"""A weight version on its way into the processes of a vLLM engine.

vLLM's own messages copy their arguments several times and end at 4 GiB. So the engine writes a
version once into anonymous shared memory, and each worker maps it there.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grpo_trainer.transport.group import BroadcastAbortedError, WeightReceiver, WeightsLostError
from grpo_trainer.transport.plan import GroupMember
from grpo_trainer.weights import TensorEntry, WeightBundle, layout

Shapes = dict[str, tuple[int, ...]]

WORKER_CLASS = f"{__name__}.WeightWriter"
MISMATCH = "weights do not fit the model"
UNTOUCHED = "weights untouched"
LOST = "weights lost"
_DERIVED = (".W_UK_T", ".W_UV")
"""Of latent attention: computed from kv_b_proj after each update, and in no file."""
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


class SharedWeights:
    """One version in shared memory, which is gone once it is closed and no worker maps it."""

    def __init__(self, bundles: Sequence[WeightBundle]) -> None:
        tensors = [(entry, data) for bundle in bundles for entry, data in bundle.tensors()]
        self._entries = layout((e.name, e.dtype, e.shape, e.size) for e, _ in tensors)
        self._file = os.memfd_create("grpo-weights")
        size = max(entry.offset + entry.size for entry in self._entries)
        os.ftruncate(self._file, size)
        with mmap.mmap(self._file, size) as memory:
            for entry, (_, data) in zip(self._entries, tensors, strict=True):
                memory[entry.offset : entry.offset + entry.size] = data.data

    @property
    def handle(self) -> tuple[str, list[tuple[Any, ...]]]:
        """Arguments of `WeightWriter.write_weights`, of plain types."""
        return f"/proc/{os.getpid()}/fd/{self._file}", [astuple(e) for e in self._entries]

    def close(self) -> None:
        os.close(self._file)


class WeightWriter:
    """What vLLM's workers can be asked beside their own methods: it is mixed into their class."""

    model_runner: Any
    vllm_config: Any

    device: torch.device
    rank: int
    receiver: WeightReceiver | None = None
    """Of broadcasts."""

    def end_with(self, pid: int) -> str:
        """End this process when that one ends, however it does: nobody else would."""
        descriptor = os.pidfd_open(pid)

        def watch() -> None:
            select.select([descriptor], [], [])
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=watch, daemon=True, name="end-with-producer").start()
        return ""

    def join_group(self, members: Sequence[Sequence[Any]]) -> str:
        """Become a receiver of broadcasts; returns what went wrong, or nothing."""
        self.receiver = None  # the sockets of a group that is over
        try:
            self.receiver = WeightReceiver(
                [GroupMember.of(s) for s in members], self.rank, self.device
            )
        except RuntimeError as error:
            return f"{UNTOUCHED}: {error}"
        return ""

    def receive_weights(self, number: int) -> str:
        """Take part in a broadcast; returns what went wrong, or nothing."""
        if self.receiver is None:
            return f"{UNTOUCHED}: in no group"
        try:
            self.receiver.handshake(number)
        except BroadcastAbortedError as error:
            return f"{UNTOUCHED}: {error}"
        names = {entry.name for entry in self.receiver.entries}
        arriving = ((entry.name, tensor) for entry, tensor in self.receiver.tensors(keep=True))
        try:
            return self._write(self._with_head(arriving, names))
        except WeightsLostError as error:
            return f"{LOST}: {error}"

    def write_weights(self, path: str, entries: Sequence[Sequence[Any]]) -> str:
        """Write one version from shared memory; returns what is wrong with it, or nothing."""
        names = {entry[0] for entry in entries}
        return self._write(self._with_head(_tensors(path, entries), names))

    def _with_head(
        self, tensors: Iterable[tuple[str, Tensor]], names: Collection[str]
    ) -> Iterator[tuple[str, Tensor]]:
        """With a head where it is tied: on a CPU it is a packed copy, which would stay the old."""
        tied = self.vllm_config.model_config.hf_text_config.tie_word_embeddings
        for name, tensor in tensors:
            yield name, tensor
            if tied and name == _EMBEDDING and _HEAD not in names:
                yield _HEAD, tensor

    def _write(self, tensors: Iterator[tuple[str, Tensor]]) -> str:
        """Write one version in place; returns what is wrong with it, or nothing."""
        from vllm.model_executor.model_loader.reload import (
            finalize_layerwise_reload,
            initialize_layerwise_reload,
        )

        config = self.vllm_config.model_config
        model = self.model_runner.get_model()
        expected = {n for n, _ in model.named_parameters() if not n.endswith(_DERIVED)}
        if self.device.type == "cpu":
            _unpack_experts(model)
        # As `model_runner.reload_weights` does, which only logs what is missing.
        initialize_layerwise_reload(model)
        try:
            written = model.load_weights(tensors)
        except WeightsLostError:
            raise
        except (ValueError, KeyError, RuntimeError, AssertionError) as error:
            # Only its text would reach the engine from here, and the type says whose fault it is.
            return f"{MISMATCH}: {type(error).__name__}: {error}"
        finally:
            finalize_layerwise_reload(model, config)
        missing = sorted(expected - written)
        return f"{MISMATCH}: missing: {', '.join(missing)}" if missing else ""


def _unpack_experts(model: Any) -> None:
    """Have the experts packed again after an update.

    On a CPU vLLM packs the weights of experts once, for its kernel; an update would be written over
    the packed ones as it is.
    """
    for module in model.modules():
        method: Any = getattr(module, "quant_method", None)
        if method is not None and getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None


def _tensors(path: str, entries: Sequence[Sequence[Any]]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a version, over a mapping that is private to this process."""
    memory = np.memmap(path, dtype=np.uint8, mode="c")
    for name, dtype, shape, offset, size in entries:
        raw = torch.from_numpy(memory[offset : offset + size])
        yield name, raw.view(getattr(torch, dtype)).view(tuple(shape))


def version_of(bundles: Sequence[WeightBundle]) -> int:
    """The version that bundles are of; raises ValueError when they differ."""
    versions = {bundle.version for bundle in bundles}
    if len(versions) != 1:
        raise ValueError(f"weights: one version at a time, got bundles of {sorted(versions)}")
    return versions.pop()


def check_shapes(entries: Sequence[TensorEntry], shapes: Shapes | None) -> Shapes:
    """Shapes by name; raises ValueError unless they are `shapes`, where these are known already."""
    given = {entry.name: entry.shape for entry in entries}
    if shapes is not None and given != shapes:
        common = given.keys() & shapes.keys()
        faults = {
            "unknown": given.keys() - shapes.keys(),
            "missing": shapes.keys() - given.keys(),
            "wrong shape": {
                f"{name} {list(given[name])} instead of {list(shapes[name])}"
                for name in common
                if given[name] != shapes[name]
            },
        }
        text = "; ".join(f"{fault}: {', '.join(sorted(n))}" for fault, n in faults.items() if n)
        raise ValueError(f"{MISMATCH}: {text}")
    return given
