"""From the results of the parts to the score of a completion."""

from collections.abc import Sequence

from ..messages import Score
from ..spec.reward import RewardPart
from .worker import Failure

NONE_APPLIES = "none"
"""`Score.error` of a completion for which no part returned a reward."""


def combine(
    parts: Sequence[RewardPart], results: Sequence[Score | Failure], *, named: bool
) -> Score:
    """The weighted sum of the parts; `results` has one for each.

    A part that failed leaves the completion without a score. A part whose reward is None does not
    apply to the completion; without any that applies it has no score either. Accuracy and format
    accuracy are those of the first part that applies. `named` records the value of each part, and
    names the part in errors.
    """
    pairs = list(zip(parts, results, strict=True))
    scored = [(p, r) for p, r in pairs if isinstance(r, Score) and r.reward is not None]
    values = {p.name: r.reward for p, r in scored if r.reward is not None} if named else {}
    for part, result in pairs:
        if isinstance(result, Failure):
            reason = f"{part.name}: {result.reason}" if named else str(result.reason)
            return _unscored(reason, values)
    if not scored:
        return _unscored(NONE_APPLIES, values)
    first = scored[0][1]
    return Score(
        reward=sum(part.weight * (result.reward or 0.0) for part, result in scored),
        format_accuracy=first.format_accuracy,
        accuracy=first.accuracy,
        parts=values,
    )


def _unscored(reason: str, values: dict[str, float]) -> Score:
    return Score(None, format_accuracy=0.0, accuracy=0.0, error=reason, parts=values)
