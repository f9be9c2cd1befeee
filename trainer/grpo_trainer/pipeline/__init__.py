"""Prompts out to producers, scored groups back to the trainer: bounded, versioned, replayable."""

from .batch import Batch
from .buffer import RolloutBuffer
from .leases import Lease
from .source import PromptSource, SourceState, Ticket

__all__ = ["Batch", "Lease", "PromptSource", "RolloutBuffer", "SourceState", "Ticket"]
