"""Episodes of random turns and observations, for the tests of records."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from grpo_trainer.messages import Completion, Episode, Message, Score, ScoredGroup
from unit.algorithm.builders import VOCABULARY, completion, groups


def episode(parts: Sequence[tuple[bool, Sequence[int]]], score: Score | None = None) -> Completion:
    """An episode of (sampled, token ids) in order; log-probabilities of sampled tokens are -1."""
    ids = [token for _, tokens in parts for token in tokens]
    sampled = np.array([drawn for drawn, tokens in parts for _ in tokens], dtype=np.bool_)
    base = completion(ids, [-1.0 if drawn else float("nan") for drawn in sampled])
    turns = tuple(Message("assistant" if drawn else "tool", str(ids)) for drawn, ids in parts)
    return replace(base, episode=Episode(sampled, turns, score or Score(1.0, 1.0, 1.0)))


def with_observations(group: ScoredGroup, cuts: Sequence[tuple[float, Sequence[int]]]) -> Any:
    """The group with observations put into each completion, each at a share of its length."""

    def spread(given: Completion) -> Completion:
        ids, logprobs, sampled = list(given.token_ids), list(given.logprobs), []
        sampled = [True] * len(ids)
        places = sorted(((int(share * len(ids)), tokens) for share, tokens in cuts), reverse=True)
        for place, tokens in places:
            ids[place:place] = tokens
            logprobs[place:place] = [float("nan")] * len(tokens)
            sampled[place:place] = [False] * len(tokens)
        base = completion(ids, logprobs, given.finish_reason)
        mask = np.array(sampled, dtype=np.bool_)
        return replace(base, episode=Episode(mask, (), Score(1.0, 1.0, 1.0)))

    completions = tuple(spread(c) for c in group.rollout.completions)
    return replace(group, rollout=replace(group.rollout, completions=completions))


def observed_groups() -> st.SearchStrategy[tuple[ScoredGroup, ScoredGroup]]:
    """Groups of single turns, and the same with observations between their tokens."""
    tokens = st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=4)
    cuts = st.lists(st.tuples(st.floats(0, 1), tokens), max_size=3)
    return st.builds(lambda g, c: (g, with_observations(g, c)), groups(), cuts)
