"""Prompts out to producers, scored groups back to the trainer: bounded, versioned, replayable."""

from .admission import Limits
from .batch import Batch
from .buffer import RolloutBuffer
from .change_signal import ChangeSignal
from .leases import Lease
from .source import PromptSource, ScheduledPrompt, SourceState

__all__ = [
    "Batch",
    "ChangeSignal",
    "Lease",
    "Limits",
    "PromptSource",
    "RolloutBuffer",
    "ScheduledPrompt",
    "SourceState",
]
