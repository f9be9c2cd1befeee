"""The optimizer that the plugins wrap: AdamW that refuses gradients that are not finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from grpo_trainer.spec import ResolvedAlgorithm


class GuardedAdamW(torch.optim.AdamW):
    """AdamW that skips a step whose gradients are not finite.

    Plugins with mixed precision, ZeRO or tensor parallelism reduce and clip gradients and then call
    the optimizer that they wrap, all in one call. A single NaN reaches every weight by way of the
    clipped norm; but the plugin has that norm already, of all ranks.
    """

    wrapper: Any = None
    """The plugin's optimizer around this one; None where the caller checks the norm."""

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """One update, unless the wrapper's norm is not finite."""
        if self.wrapper is not None and not math.isfinite(gradient_norm(self.wrapper)):
            return None
        return super().step(closure)


def gradient_norm(wrapper: Any) -> float:
    """The norm before clipping of the step that a plugin's optimizer made last, or is making."""
    return float(wrapper.get_grad_norm() or 0.0)


def make_optimizer(model: Any, algorithm: ResolvedAlgorithm, *, on_cuda: bool) -> GuardedAdamW:
    """AdamW, fused on CUDA by torch's own kernels: HybridAdam's would need nvcc at run time."""
    options = algorithm.optimizer
    return GuardedAdamW(
        [p for p in model.parameters() if p.requires_grad],
        lr=algorithm.learning_rate,
        betas=(options.beta1, options.beta2),
        weight_decay=options.weight_decay,
        fused=on_cuda,
    )
