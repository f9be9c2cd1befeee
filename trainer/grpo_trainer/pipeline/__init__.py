"""Prompts out to producers, scored groups back to the trainer: bounded, versioned, replayable."""

from .batch import Batch
from .buffer import RolloutBuffer
from .leases import Lease
from .source import PromptSource, ScheduledPrompt, SourceState

__all__ = ["Batch", "Lease", "PromptSource", "RolloutBuffer", "ScheduledPrompt", "SourceState"]
