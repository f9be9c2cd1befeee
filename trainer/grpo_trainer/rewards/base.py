"""What a reward is: a class in the module of this package that is named after its `RewardType`.

To add one, add a member to `RewardType` and a module that binds a subclass of `LocalReward` to
`REWARD`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from ..messages import Row, Score
from ..spec.reward import RewardPart
from .worker import Failure, each

RewardFunction = Callable[[str, Row], Score]
"""Scores one completion of one row. An exception is a scoring error, not a reward of 0."""
GroupFunction = Callable[[Sequence[str], Row], Iterator[Score | Failure]]
"""Scores completions of one row: one result for each, in order."""


class Column(StrEnum):
    """A column that rewards read; `spec.dataset` gives its name in the file."""

    ANSWER = "answer"
    TESTS = "tests"


@dataclass(frozen=True, slots=True)
class RowNeeds:
    """What the parts of a reward read of a row."""

    columns: frozenset[Column]
    """Columns that every row must have."""
    reads_row: bool
    """Whether a part reads the row as it is in the file, with every column."""
    messages: bool = True
    """Whether every row must have a prompt; else an environment opens the conversation."""


class Reward(ABC):
    """One part of a reward."""

    columns: ClassVar[frozenset[Column]] = frozenset()
    """Columns that every row must have."""
    reads_row: ClassVar[bool] = False
    """Whether it reads the row as it is in the file, with every column."""
    needs_messages: ClassVar[bool] = True
    """Whether every row must have a prompt; else another part opens the conversation."""
    renders_prompt: ClassVar[bool] = False
    """Whether it reads the prompt as the model sees it."""
    system_prompt: ClassVar[str] = ""
    """Default of `reward.systemPrompt`; empty adds no system message."""
    markers: ClassVar[tuple[str, ...]] = ()
    """Texts that it reads in completions, which the tokenizer has to decode."""
    stop_strings: ClassVar[tuple[str, ...]] = ()
    """Default of `sampling.stopStrings`."""

    def __init__(self, part: RewardPart) -> None:
        self.part = part

    @abstractmethod
    def check(self, rows: Sequence[Row]) -> None:
        """Check the rows and the reward before any model loads.

        Blocks. Raises InvalidDataError with the rows that no completion can answer, and
        InvalidInputError if the reward cannot be used here.
        """


class LocalReward(Reward):
    """Scores completions, in worker processes that may be killed: it has no deadline of its own."""

    memory_bytes: ClassVar[int | None] = 4 << 30
    """Address space of a worker: a power of powers must not exhaust the machine's memory."""

    @abstractmethod
    def load(self) -> None:
        """Load what `score` needs, once in each worker. Raises InvalidInputError."""

    @abstractmethod
    def score(self, text: str, row: Row) -> Score:
        """Score one completion, from 0 to 1."""

    def score_all(self, texts: Sequence[str], row: Row) -> Iterator[Score | Failure]:
        """Score completions one after the other, each when its predecessor is consumed."""
        return each(self.score)(texts, row)


def graded(*, right: bool, well_formed: bool) -> Score:
    """A right completion is rewarded only in the required form; its accuracy counts either way."""
    return Score(
        reward=float(right and well_formed),
        format_accuracy=float(well_formed),
        accuracy=float(right),
    )
