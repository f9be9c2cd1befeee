"""What must not follow the working precision, and what must not be random, in a trained model."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


def computed_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the floating-point buffers that no checkpoint carries, by name.

    Rotary frequencies above all: rounded to bfloat16 they are off by up to 0.4 %, which at position
    4,000 is an angle of several radians, while inference engines keep them in fp32.
    """
    persistent = model.state_dict().keys()
    return {
        name: buffer.detach().clone()
        for name, buffer in model.named_buffers()
        if buffer.is_floating_point() and name not in persistent
    }


def restore_buffers(model: nn.Module, buffers: dict[str, Tensor]) -> None:
    """Undo what casting the model did to the buffers that `computed_buffers` returned.

    A pipeline stage may lack some of them.
    """
    for name, buffer in list(model.named_buffers()):
        if name in buffers and buffer.dtype != buffers[name].dtype:
            parent, _, leaf = name.rpartition(".")
            owner = model.get_submodule(parent)
            owner._buffers[leaf] = buffers[name].to(buffer.device)


def disable_dropout(config: Any) -> None:
    """Set every dropout probability of a model configuration to 0.

    Log-probabilities under dropout are those of another policy than the sampler's: the importance
    ratio of on-policy tokens would not be 1. Evaluation mode is no way out, since models checkpoint
    their activations only in training mode.
    """
    for name, value in vars(config).items():
        random = "dropout" in name or name.endswith(("pdrop", "layerdrop"))
        if random and isinstance(value, float):
            setattr(config, name, 0.0)
        elif hasattr(value, "to_dict"):
            disable_dropout(value)
