"""Prompts out to producers, scored groups back to the trainer: bounded, versioned, replayable."""

from .admission import Limits
from .batch import Batch
from .buffer import RolloutBuffer
from .change_signal import ChangeSignal
from .leases import Lease
from .mixture import Mixture
from .source import PromptSource, ScheduledPrompt, SourceState

__all__ = [
    "Batch",
    "ChangeSignal",
    "Lease",
    "Limits",
    "Mixture",
    "PromptSource",
    "RolloutBuffer",
    "ScheduledPrompt",
    "SourceState",
]
