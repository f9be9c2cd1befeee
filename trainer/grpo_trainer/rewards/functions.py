"""From a reward's spec to the function that scores one completion."""

from collections.abc import Callable
from functools import partial

from ..messages import Row, Score
from ..spec.training import RewardSpec, RewardType
from . import symbolic
from .answers import matches
from .code import require_sandbox, score_code
from .custom import load_function, score_custom
from .formats import Extraction, boxed_answer, think_answer
from .scores import RewardFunction, graded


def make_reward(spec: RewardSpec) -> RewardFunction:
    """The reward of this spec, for processes that may be killed: it has no deadline of its own.

    Raises InvalidInputError where a custom function cannot be loaded, or programs not be confined.
    """
    match spec.type:
        case RewardType.THINK_ANSWER_TAGS:
            symbolic.warm_up()
            return partial(score_answer, extract=think_answer)
        case RewardType.BOXED:
            symbolic.warm_up()
            return partial(score_answer, extract=boxed_answer)
        case RewardType.CODE:
            require_sandbox()
            return partial(score_code, timeout_seconds=spec.timeout_seconds)
        case RewardType.CUSTOM:
            return partial(score_custom, function=load_function(spec))


def score_answer(text: str, row: Row, *, extract: Callable[[str], Extraction]) -> Score:
    """Compare the answer that the completion marks with the row's reference."""
    assert row.answer is not None, "rows are checked at load"
    marked = extract(text)
    right = marked.answer is not None and matches(row.answer, marked.answer)
    return graded(right=right, well_formed=marked.well_formed)
