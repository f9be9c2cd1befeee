"""What a training process of the layout tests is asked to do."""

from dataclasses import dataclass
from pathlib import Path

from grpo_trainer.algorithm.batching import StepBatch
from grpo_trainer.consumer.policy import PolicyOptions


@dataclass(frozen=True)
class LayoutJob:
    options: PolicyOptions
    steps: tuple[tuple[int, StepBatch], ...]
    directory: Path
    load: Path | None = None
    save: bool = False
