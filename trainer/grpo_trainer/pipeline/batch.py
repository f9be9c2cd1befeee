"""Scored groups in the buffer, and batches of them."""

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from .source import ScheduledPrompt


class Versioned(Protocol):
    """A scored group."""

    @property
    def version(self) -> int:
        """The oldest weight version that sampled any of its tokens."""


GroupT = TypeVar("GroupT", bound=Versioned)


@dataclass(frozen=True, slots=True, order=True)
class BufferedGroup(Generic[GroupT]):
    """A group in the buffer, ordered by how soon it becomes too stale."""

    version: int
    serial: int
    prompt: ScheduledPrompt = field(compare=False)
    group: GroupT = field(compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Batch(Generic[GroupT]):
    """The groups of one step."""

    step: int
    episode: int
    """Of its newest prompt."""
    serials: tuple[int, ...]
    """Ascending."""
    groups: tuple[GroupT, ...]
    """One for each serial."""
    filtered: tuple[int, ...]
    """Serials that were filtered since the previous batch."""
