"""What a training process must keep beside the weights to resume as if it had never stopped."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.spec import Dtype

from ..parallel_dims import ParallelDims
from ..random_states import random_states, set_random_states
from .policy import Policy


def rank_file(directory: Path, rank: int) -> Path:
    return directory / f"rank-{rank}.pt"


def save_state(policy: Policy, directory: Path, step: int) -> None:
    """Write this rank's optimizer state, fp32 master weights and random states.

    Each rank writes the tensors its own optimizer updates: with ZeRO its share, with parallel
    slices its slice. ColossalAI's own files leave the fp32 masters out, and with them most of
    what a small learning rate did since they last moved a bf16 weight.
    """
    optimizer = policy.optimizer.optim
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    keep_masters = policy.options.dtype is not Dtype.FLOAT32
    torch.save(
        {
            "step": step,
            "layout": asdict(policy.options.dims),
            "moments": [dict(optimizer.state[p]) for p in parameters],
            "masters": [p.detach() for p in parameters] if keep_masters else None,
            "random": random_states(),
        },
        rank_file(directory, policy.options.rank),
    )


def load_state(policy: Policy, directory: Path) -> None:
    """Restore what `save_state` wrote; the weights are those the policy was built from.

    Raises InvalidInputError when the files come from another layout of processes.
    """
    path = rank_file(directory, policy.options.rank)
    if not path.exists():
        raise InvalidInputError(f"checkpoint {directory}: no state of rank {policy.options.rank}")
    saved = torch.load(path, map_location=policy.device, weights_only=True)
    dims = policy.options.dims
    if ParallelDims(**saved["layout"]) != dims:
        raise InvalidInputError(
            f"checkpoint {directory}: written by {saved['layout']}, this run has "
            f"{asdict(dims)}; "
            "resume with the layout that wrote it"
        )
    optimizer = policy.optimizer.optim
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    with torch.no_grad():
        for index, parameter in enumerate(parameters):
            optimizer.state[parameter] = saved["moments"][index]
            if saved["masters"] is not None:
                parameter.copy_(saved["masters"][index])
    set_random_states(saved["random"])
