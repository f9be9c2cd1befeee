"""Small records for the tests of the algorithm."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from grpo_trainer.messages import Completion, FinishReason, Prompt, Rollout, Row, Score, ScoredGroup
from grpo_trainer.spec import GRPOJobSpec, ResolvedAlgorithm, resolve_algorithm

VOCABULARY = 7
PAD = 0


def algorithm(**overrides: Any) -> ResolvedAlgorithm:
    """GRPO's defaults without the KL term, but for what is given."""
    defaults = resolve_algorithm(GRPOJobSpec())
    return replace(defaults, **{"kl_coefficient": 0.0, **overrides})


def completion(
    token_ids: Sequence[int],
    logprobs: Sequence[float] | None = None,
    finish_reason: FinishReason = FinishReason.STOP,
) -> Completion:
    given = [-1.0] * len(token_ids) if logprobs is None else logprobs
    return Completion(
        token_ids=np.array(token_ids, dtype=np.int32),
        logprobs=np.array(given, dtype=np.float32),
        versions=np.zeros(len(token_ids), dtype=np.int32),
        text="",
        finish_reason=finish_reason,
    )


def group(
    rewards: Sequence[float | None],
    completions: Sequence[Completion] | None = None,
    prompt_ids: Sequence[int] = (1, 2),
) -> ScoredGroup:
    """A group where a reward above 0 is a right answer; completions of two tokens unless given."""
    completions = [completion([3, 4])] * len(rewards) if completions is None else completions
    return ScoredGroup(
        prompt=Prompt(Row(source="test", messages=()), np.array(prompt_ids, dtype=np.int32)),
        rollout=Rollout("request", tuple(completions)),
        scores=tuple(
            Score(reward, format_accuracy=1.0, accuracy=float(bool(reward and reward > 0)))
            for reward in rewards
        ),
    )


def completions() -> st.SearchStrategy[Completion]:
    """Completions of up to 6 tokens, some with unknown log-probabilities, some truncated."""
    logprob = st.sampled_from([-0.1, -0.7, -2.0, -6.0, float("nan"), float("-inf")])
    token = st.tuples(st.integers(1, VOCABULARY - 1), logprob)
    return st.builds(
        lambda tokens, reason: completion([t for t, _ in tokens], [p for _, p in tokens], reason),
        st.lists(token, max_size=6),
        st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
    )


def groups() -> st.SearchStrategy[ScoredGroup]:
    reward = st.sampled_from([None, float("nan"), 0.0, 0.5, 1.0, 10.0])
    completion = st.tuples(reward, completions())
    return st.builds(
        lambda completions, prompt: group(
            [r for r, _ in completions], [c for _, c in completions], prompt
        ),
        st.lists(completion, min_size=2, max_size=4),
        st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=3),
    )
