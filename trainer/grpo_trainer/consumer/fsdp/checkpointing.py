"""Training state by torch.distributed.checkpoint, which any number of ranks can read.

The files of a state are `.metadata` and one or more `__R_N.distcp` of each rank that wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from grpo_trainer.errors import InvalidInputError

from ..random_states import random_states, set_random_states

METADATA = ".metadata"


class _CopyStager(AsyncStager):
    """Stages a copy of the state in host memory.

    The stagers of torch 2.13 deep-copy, which fails for a DTensor on the CPU.
    """

    _synchronize_after_execute = False

    def stage(self, state_dict: Any) -> Any:
        return tree_map_only(Tensor, lambda t: t.detach().clone(), state_dict)

    def synchronize_staging(self) -> None: ...

    def close(self) -> None: ...


class StateFiles:
    """Writes and reads the state of one rank: shards, moments, random states."""

    def __init__(self, model: Any, optimizer: Optimizer, rank: int) -> None:
        """Collective: the ranks form a group for the writes beside training."""
        self._model, self._optimizer, self._rank = model, optimizer, rank
        self._group = dist.new_group(backend="gloo")

    def save(self, directory: Path, step: int) -> Callable[[], None]:
        """Copy the state and begin to write it; the returned call waits for the disk.

        Collective, and so is the returned call.
        """
        saving = async_save(
            self._state(step),
            checkpoint_id=directory,
            process_group=self._group,
            async_stager=_CopyStager(),
        )
        assert isinstance(saving, Future)

        def wait() -> None:
            saving.result()

        return wait

    def load(self, directory: Path) -> None:
        """Read a state that any number of ranks wrote. Collective.

        Raises InvalidInputError when the directory has no such state, or another model's.
        """
        if not (directory / METADATA).exists():
            raise InvalidInputError(
                f"checkpoint {directory}: it has no state that backend fsdp can read, which writes "
                f"a file {METADATA}; resume with the backend that wrote it, or start a new run "
                f"with spec.model.path {str(directory.parent)!r}, without its optimizer state"
            )
        state = self._state(0)
        known = FileSystemReader(directory).read_metadata().state_dict_metadata
        if not any(name.startswith(f"random.{self._rank}.") for name in known):
            del state["random"]  # fewer ranks wrote
        try:
            load(state, checkpoint_id=directory, process_group=self._group)
        except (CheckpointException, ValueError, RuntimeError) as error:
            raise InvalidInputError(
                f"checkpoint {directory}: its state is not that of this model: {error}"
            ) from error
        set_state_dict(
            self._model,
            self._optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        if "random" in state:
            set_random_states(state["random"][str(self._rank)])

    def _state(self, step: int) -> dict[str, Any]:
        offload = StateDictOptions(cpu_offload=torch.cuda.is_available())
        model, optimizer = get_state_dict(self._model, self._optimizer, options=offload)
        return {
            "model": model,
            "optimizer": optimizer,
            "step": torch.tensor(step),
            "random": {str(self._rank): random_states()},
        }
