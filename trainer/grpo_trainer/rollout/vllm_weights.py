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
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grpo_trainer.weights import WeightBundle, layout

Shapes = dict[str, tuple[int, ...]]

WORKER_CLASS = f"{__name__}.WeightWriter"
UNFIT = "weights do not fit the model"
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

    def end_with(self, pid: int) -> None:
        """End this process when that one ends, however it does: nobody else would."""
        descriptor = os.pidfd_open(pid)

        def watch() -> None:
            select.select([descriptor], [], [])
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=watch, daemon=True, name="end-with-producer").start()

    def write_weights(self, path: str, entries: Sequence[Sequence[Any]]) -> str:
        """Write one version in place; returns what is wrong with it, or nothing."""
        from vllm.model_executor.model_loader.reload import (
            finalize_layerwise_reload,
            initialize_layerwise_reload,
        )

        config = self.vllm_config.model_config
        model = self.model_runner.get_model()
        expected = {name for name, _ in model.named_parameters()}
        tied = config.hf_text_config.tie_word_embeddings
        # As `model_runner.reload_weights` does, which only logs what is missing.
        initialize_layerwise_reload(model)
        try:
            written = model.load_weights(_tensors(path, entries, tied))
        except (ValueError, KeyError, RuntimeError, AssertionError) as error:
            # Only its text would reach the engine from here, and the type says whose fault it is.
            return f"{type(error).__name__}: {error}"
        finally:
            finalize_layerwise_reload(model, config)
        missing = sorted(expected - written)
        return f"missing: {', '.join(missing)}" if missing else ""


def _tensors(
    path: str, entries: Sequence[Sequence[Any]], tied: bool
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a version, over a mapping that is private to this process."""
    memory = np.memmap(path, dtype=np.uint8, mode="c")
    names = {entry[0] for entry in entries}
    for name, dtype, shape, offset, size in entries:
        raw = torch.from_numpy(memory[offset : offset + size])
        tensor = raw.view(getattr(torch, dtype)).view(tuple(shape))
        yield name, tensor
        if tied and name == _EMBEDDING and _HEAD not in names:
            # On a CPU the head has a packed copy of its own, which would stay what it was.
            yield _HEAD, tensor


def check_version(bundles: Sequence[WeightBundle], shapes: Shapes | None) -> tuple[int, Shapes]:
    """The version of bundles that fit together, and their shapes, which may be given already.

    Raises:
        ValueError: the bundles differ in version or have other tensors than `shapes`.
    """
    versions = {bundle.version for bundle in bundles}
    if len(versions) != 1:
        raise ValueError(f"weights: one version at a time, got bundles of {sorted(versions)}")
    given = {entry.name: entry.shape for bundle in bundles for entry in bundle.entries}
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
        raise ValueError(f"{UNFIT}: {text}")
    return versions.pop(), given
