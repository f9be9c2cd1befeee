"""What a completion earns, and the signature that every reward shares."""

from typing import Protocol

from ..messages import Row, Score

RIGHT_REWARD = 10.0
WRONG_REWARD = 0.0


class RewardFunction(Protocol):
    """Scores one completion to one row. Whatever it raises is counted as a scoring error, not as a
    0."""

    def __call__(self, text: str, row: Row, /) -> Score: ...


def graded(*, right: bool, well_formed: bool) -> Score:
    """A right completion pays only in the asked-for form; its accuracy counts either way."""
    return Score(
        reward=RIGHT_REWARD if right and well_formed else WRONG_REWARD,
        format_accuracy=float(well_formed),
        accuracy=float(right),
    )
