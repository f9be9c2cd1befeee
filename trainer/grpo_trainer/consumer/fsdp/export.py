"""Whole weights under the Hub's names, a decoder layer at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


def hub_tensors(model: Any, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Whole parameters and persistent buffers, floating-point ones as `dtype`. Collective.

    transformers stacks and renames tensors on loading, experts above all; the reverse runs on each
    layer alone. Of tied parameters only the first name appears, as in the files of the Hub.
    """
    from transformers.core_model_loading import revert_weight_conversion

    tied = set(model.all_tied_weights_keys)  # all but the first name
    layers: dict[str, dict[str, Tensor]] = {}
    for name, tensor in model.state_dict().items():
        if name not in tied:
            layers.setdefault(_layer_of(name), {})[name] = tensor
    for layer in layers.values():
        # Cast before the gather: half the bytes.
        whole = {name: _whole(_cast(tensor.detach(), dtype)) for name, tensor in layer.items()}
        yield from revert_weight_conversion(model, whole).items()


def _layer_of(name: str) -> str:
    """`model.layers.3` for everything of that layer; other tensors are by themselves."""
    parts = name.split(".")
    number = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    return name if number is None else ".".join(parts[: number + 1])


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
