"""Shaping of rewards after scoring: the soft penalty for long completions."""

from collections.abc import Sequence
from dataclasses import replace

from ..messages import Completion, Score
from ..spec import ResolvedAlgorithm


def overlong_penalty(length: int, max_new_tokens: int, buffer_tokens: int) -> float:
    """The penalty in [-1, 0] of a completion of `length` tokens.

    0 up to `max_new_tokens - buffer_tokens`, then linear down to -1 at `max_new_tokens`: eq. 13 of
    DAPO, https://arxiv.org/abs/2503.14476.
    """
    excess = length - (max_new_tokens - buffer_tokens)
    return -min(max(excess / buffer_tokens, 0.0), 1.0)


def shape(
    scores: Sequence[Score],
    completions: Sequence[Completion],
    algorithm: ResolvedAlgorithm,
    max_new_tokens: int,
) -> tuple[Score, ...]:
    """Add the overlong penalty, in units of the reward, where the algorithm asks for it.

    Accuracy stays as it was, so that it can be filtered on; unscored completions stay unscored.
    """
    if not algorithm.overlong:
        return tuple(scores)
    return tuple(
        _penalized(score, len(completion.token_ids), algorithm, max_new_tokens)
        for score, completion in zip(scores, completions, strict=True)
    )


def _penalized(
    score: Score, length: int, algorithm: ResolvedAlgorithm, max_new_tokens: int
) -> Score:
    if score.reward is None:
        return score
    share = overlong_penalty(length, max_new_tokens, algorithm.overlong_buffer_tokens)
    return replace(score, reward=score.reward + algorithm.overlong_penalty * share)
