"""The optimizer that every plugin wraps: AdamW that refuses gradients that are not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


class GuardedAdamW(torch.optim.AdamW):
    """AdamW that skips a step on all ranks when a gradient of any rank is not finite.

    Every plugin reduces, unscales and clips gradients and then calls the optimizer that it wraps,
    so this is the one place that sees the final gradients under all of them. A single NaN that gets
    through reaches every weight by way of the clipped norm.
    """

    skipped = False
    """Whether the last call of `step` left weights and moments as they were."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """One update. Collective over all ranks."""
        self.skipped = not self._finite_everywhere()
        return None if self.skipped else super().step(closure)

    def _finite_everywhere(self) -> bool:
        gradients = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        norms = torch.stack(torch._foreach_norm(gradients)) if gradients else torch.zeros(1)
        finite = norms.isfinite().all()
        if dist.is_initialized() and dist.get_world_size() > 1:
            device = "cuda" if "nccl" in dist.get_backend() else "cpu"
            flag = finite.to(device, torch.float32)
            dist.all_reduce(flag, op=dist.ReduceOp.MIN)
            finite = flag.bool()
        return bool(finite)
