"""What a reward is: a class in the module of this package that is named after its `RewardType`.

To add one, add a member to `RewardType` and a module that binds a subclass of `Reward` to `REWARD`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import ClassVar

from ..messages import Row, Score
from ..spec.training import RewardSpec

RIGHT_REWARD = 10.0
WRONG_REWARD = 0.0

RewardFunction = Callable[[str, Row], Score]
"""Scores one completion of one row. An exception is a scoring error, not a reward of 0."""


class Column(StrEnum):
    """A column that rewards read; `spec.dataset` gives its name in the file."""

    ANSWER = "answer"
    TESTS = "tests"


class Reward(ABC):
    """Scores completions, in worker processes that may be killed: it has no deadline of its own."""

    columns: ClassVar[frozenset[Column]] = frozenset()
    """Columns that every row must have."""
    reads_row: ClassVar[bool] = False
    """Whether it reads the row as it is in the file, with every column."""
    system_prompt: ClassVar[str] = ""
    """Default of `reward.systemPrompt`; empty adds no system message."""
    markers: ClassVar[tuple[str, ...]] = ()
    """Texts that it reads in completions, which the tokenizer has to decode."""
    stop_strings: ClassVar[tuple[str, ...]] = ()
    """Default of `sampling.stopStrings`."""
    max_reward: ClassVar[float] = RIGHT_REWARD
    """Reward of a right completion; the default of `algorithm.overlong.penalty`."""
    memory_bytes: ClassVar[int | None] = 4 << 30
    """Address space of a worker: a power of powers must not exhaust the machine's memory."""

    def __init__(self, spec: RewardSpec) -> None:
        self.spec = spec

    @abstractmethod
    def check(self, rows: Sequence[Row]) -> None:
        """Check the rows and the reward before any model loads.

        Blocks. Raises InvalidDataError with the rows that no completion can answer, and
        InvalidInputError if the reward cannot be used here.
        """

    @abstractmethod
    def load(self) -> None:
        """Load what `score` needs, once in each worker. Raises InvalidInputError."""

    @abstractmethod
    def score(self, text: str, row: Row) -> Score:
        """Score one completion."""


def graded(*, right: bool, well_formed: bool) -> Score:
    """A right completion is rewarded only in the required form; its accuracy counts either way."""
    return Score(
        reward=RIGHT_REWARD if right and well_formed else WRONG_REWARD,
        format_accuracy=float(well_formed),
        accuracy=float(right),
    )
