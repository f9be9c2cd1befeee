"""Gradients and optimizer of parameters that are sharded in several ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import get_total_norm
from torch.optim import AdamW

from grpo_trainer.spec import ResolvedAlgorithm

_TINY = 1e-6
"""Keeps the factor of a clipped zero gradient finite, as in torch's clip_grad_norm_."""


def make_optimizer(model: nn.Module, algorithm: ResolvedAlgorithm, device: str) -> AdamW:
    """AdamW, fused on CUDA.

    Its kernels take many tensors at once, but no mixture of meshes: each kind is a group.
    """
    options = algorithm.optimizer
    trained = [p for p in model.parameters() if p.requires_grad]
    return AdamW(
        [{"params": parameters} for parameters in _by_kind(trained).values()],
        lr=algorithm.learning_rate,
        betas=(options.beta1, options.beta2),
        weight_decay=options.weight_decay,
        fused=device == "cuda",
    )


def gradient_norm(parameters: Sequence[nn.Parameter]) -> float:
    """The norm of all gradients together, the same on all ranks. Collective.

    torch's own refuses plain tensors beside DTensors, and DTensors of several meshes, both of which
    tensor parallelism has: here each kind has its norm.
    """
    norms = [_whole(get_total_norm(kind)).float() for kind in _gradients(parameters)]
    norm = torch.stack(norms).norm() if norms else torch.zeros(())
    # A slice that only some tensor-parallel ranks hold may be the one that is not finite. The
    # maximum of NaN and a number is not defined, so infinity is in its place.
    norm = torch.where(norm.isfinite(), norm, torch.inf).cpu()
    dist.all_reduce(norm, op=dist.ReduceOp.MAX)
    return float(norm)


def scale_gradients(parameters: Sequence[nn.Parameter], factor: float) -> None:
    """Multiply all gradients by a number."""
    for kind in _gradients(parameters):
        torch._foreach_mul_(kind, factor)


def clip_factor(norm: float, limit: float) -> float:
    """What gradients of a norm are multiplied by to have at most the norm `limit`."""
    return min(1.0, limit / (norm + _TINY))


def _gradients(parameters: Sequence[nn.Parameter]) -> Iterable[list[Tensor]]:
    gradients = [p.grad for p in parameters if p.grad is not None]
    return _by_kind(gradients).values()


def _by_kind(tensors: Sequence[Tensor]) -> dict[Any, list[Tensor]]:
    """Tensors by mesh and placements; plain ones have neither."""
    kinds: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        key = (tensor.device_mesh, tensor.placements) if isinstance(tensor, DTensor) else None
        kinds.setdefault(key, []).append(tensor)
    return kinds


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
