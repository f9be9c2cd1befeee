"""What the rewards for a short final answer share: comparison with the row's reference answer."""

from abc import abstractmethod
from collections.abc import Sequence

from ..messages import Row, Score
from ..row_faults import refuse
from . import symbolic
from .answers import matches
from .base import Column, LocalReward, graded
from .extraction import Extraction
from .references import reference_faults


class MathReward(LocalReward):
    """Compares the answer that a completion marks with the reference answer."""

    columns = frozenset({Column.ANSWER})

    @abstractmethod
    def extract(self, text: str) -> Extraction:
        """The marked answer and whether the completion has the required form."""

    def check(self, rows: Sequence[Row]) -> None:
        part = self.part
        field = part.timeout_field.removeprefix("spec.")
        if faults := reference_faults(rows, part.timeout_seconds, field):
            raise refuse(faults)

    def load(self) -> None:
        symbolic.warm_up()

    def score(self, text: str, row: Row) -> Score:
        assert row.answer is not None, "rows are checked at load"
        # A template that opens the completion with `<think>` takes part in its form.
        marked = self.extract(row.prefix + text)
        right = marked.answer is not None and matches(row.answer, marked.answer)
        return graded(right=right, well_formed=marked.well_formed)
