"""The random states of a training process, to be kept beside its weights."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def random_states() -> dict[str, Any]:
    """The states of Python, numpy and torch, of plain values and tensors."""
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(internal), gauss],
        "numpy": [name, [int(k) for k in keys], position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def set_random_states(states: dict[str, Any]) -> None:
    """Restore what `random_states` returned."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(states["torch"].cpu())
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"].cpu())
