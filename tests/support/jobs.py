"""What a training process of the layout tests is asked to do."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grpo_trainer.algorithm.batching import StepBatch
from grpo_trainer.consumer.records import PolicyOptions


@dataclass(frozen=True)
class LayoutJob:
    options: PolicyOptions
    steps: tuple[tuple[int, StepBatch], ...]
    directory: Path
    load: Path | None = None
    save: bool = False
    score: NDArray[np.int64] | None = None
    """Token ids [B, L] whose log-probabilities to write, under the policy and the reference."""
    poisoned_step: int | None = None
    """Step in which one gradient of rank 0 becomes NaN."""
