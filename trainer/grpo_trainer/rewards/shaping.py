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
    *,
    max_new_tokens: int,
    max_reward: float,
) -> tuple[Score, ...]:
    """Add the overlong penalty, in units of the reward, if the algorithm enables it.

    A completion at the limit loses `algorithm.overlong_penalty`, or half of `max_reward` if absent:
    DAPO subtracts 1 from rewards of -1 and 1, half of their range. Accuracy does not change;
    unscored completions stay unscored.
    """
    if not algorithm.overlong:
        return tuple(scores)
    given, buffer = algorithm.overlong_penalty, algorithm.overlong_buffer_tokens
    full = max_reward / 2 if given is None else given

    def penalized(score: Score, completion: Completion) -> Score:
        if score.reward is None:
            return score
        share = overlong_penalty(completion.sampled_tokens, max_new_tokens, buffer)
        return replace(score, reward=score.reward + full * share)

    pairs = zip(scores, completions, strict=True)
    return tuple(penalized(*pair) for pair in pairs)
