"""From scored groups to the padded micro-batches of one optimizer step.

Prompts and completions stay the token ids that were sampled; nothing is encoded again.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_trainer.messages import FinishReason, Floats, Ints, Score, ScoredGroup
from grpo_trainer.spec import Advantage, ResolvedAlgorithm

from .advantage import Bools, GroupAdvantages, group_advantages, normalize_over_batch
from .masks import trained_rewards
from .totals import Denominators

# One token that predicts and one that is predicted: the minimum of a forward pass.
_EMPTY_LENGTH = 2


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """B samples of one forward pass, padded on the right to L positions."""

    input_ids: NDArray[np.int64]
    """[B, L] prompt, completion, padding."""
    lengths: NDArray[np.int64]
    """[B] tokens of prompt and completion."""
    mask: Bools
    """[B, L] response tokens that count in the loss, each at its own position."""
    old_logprobs: Floats
    """[B, L] log-probabilities under the behaviour policy, 0 outside the mask."""
    advantages: Floats
    """[B]"""


@dataclass(frozen=True, slots=True)
class StepStatistics:
    """Statistics of a step's data. Means are over completions, those of reward and accuracy over
    completions with a finite reward. A mean over nothing is 0."""

    samples: int
    """All completions."""
    scored_samples: int
    """Completions with a finite reward."""
    unscored: dict[str, int]
    """The other completions by reason."""
    trained_samples: int
    """Completions that go through the forward pass."""
    prompt_tokens: int
    """Each prompt once."""
    response_tokens: int
    """Sampled tokens; observations are not among them."""
    reward_mean: float
    reward_std: float
    """Mean of the groups' standard deviations."""
    zero_std_fraction: float
    """Share of groups without a learning signal."""
    accuracy_mean: float
    format_accuracy_mean: float
    response_tokens_mean: float
    truncated_fraction: float
    reward_parts: dict[str, float]
    """Mean of each named part of the reward, before its weight."""
    nonfinite_samples: int
    """Completions that are masked because none of their log-probabilities is finite."""
    nonfinite_tokens: int
    """Sampled tokens that are masked because their log-probability is not finite."""


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """One optimizer step."""

    shards: tuple[tuple[MicroBatch, ...], ...]
    """Micro-batches of each data-parallel rank, equally many and at least one."""
    denominators: Denominators
    statistics: StepStatistics
    advantages: tuple[Floats, ...]
    """Of each group, in the order given: [G]"""
    rows: tuple[tuple[tuple[int, ...], ...], ...]
    """The completion in each row of each micro-batch of each shard, numbered over all groups."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A completion that counts in the loss."""

    number: int
    """Among the completions of all groups."""
    prompt_ids: Ints
    response_ids: Ints
    old_logprobs: Floats
    counted: Bools
    """[T] tokens that count in the loss."""
    advantage: np.float32

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)


def build_step(
    groups: Sequence[ScoredGroup],
    *,
    data_parallel: int,
    microbatch: int,
    microbatch_tokens: int | None = None,
    algorithm: ResolvedAlgorithm,
    pad_token_id: int,
    multiple_of: int = 1,
    skip_zero_advantage: bool | None = None,
) -> StepBatch:
    """Arrange groups for `data_parallel` ranks in micro-batches of at most `microbatch` samples.

    With `microbatch_tokens` a micro-batch has at most that many tokens instead, padding included,
    and at least one sample.

    Masked completions (see `trained_rewards`) leave the loss, its denominators and their group's
    statistics, so that a completion that is not trained on has no effect on others. A token
    without a finite log-probability, and one of an observation, leaves the loss and its
    denominators alone.

    With `skip_zero_advantage` samples with advantage 0 only count in the denominators and have no
    forward pass. By default it is on without a KL term and an entropy bonus: their gradient is then
    exactly 0.

    Rows are padded to a multiple of `multiple_of`. A rank with fewer samples than others gets
    micro-batches of one padding row with an empty mask.
    """
    assert data_parallel >= 1 and microbatch >= 1 and multiple_of >= 1
    advantages = step_advantages(groups, algorithm)
    numbers = itertools.count()
    samples = [
        sample
        for group, of_group in zip(groups, advantages, strict=True)
        for sample in _samples(group, of_group, numbers)
    ]
    if skip_zero_advantage is None:
        skip_zero_advantage = algorithm.kl_coefficient == algorithm.entropy_coefficient == 0
    trained = [s for s in samples if s.advantage != 0 or not skip_zero_advantage]
    shares = _balance(trained, data_parallel)
    limit = _Limit(microbatch, microbatch_tokens, multiple_of)
    splits = [list(limit.split(share)) for share in shares]
    rounds = max(1, *map(len, splits))
    parts = [[*split, *[()] * (rounds - len(split))] for split in splits]
    shards = tuple(
        tuple(pad_samples(part, pad_token_id, multiple_of) for part in of_rank) for of_rank in parts
    )
    tokens = sum(int(s.counted.sum()) for s in samples)
    statistics = _statistics(groups, advantages, trained_samples=len(trained))
    denominators = Denominators(len(samples), tokens)
    return StepBatch(
        shards,
        denominators,
        statistics,
        advantages=tuple(a.advantages for a in advantages),
        rows=tuple(tuple(tuple(s.number for s in part) for part in of_rank) for of_rank in parts),
    )


def step_advantages(
    groups: Sequence[ScoredGroup], algorithm: ResolvedAlgorithm
) -> list[GroupAdvantages]:
    """The advantages of each group of a step."""
    found = [group_advantages(trained_rewards(g, algorithm), algorithm.advantage) for g in groups]
    if algorithm.advantage is not Advantage.BATCH_NORMALIZED:
        return found
    tokens = [
        np.array(
            [
                np.count_nonzero(c.counted) if valid else 0
                for c, valid in zip(g.rollout.completions, a.valid, strict=True)
            ],
            dtype=np.int64,
        )
        for g, a in zip(groups, found, strict=True)
    ]
    return normalize_over_batch(found, tokens)


def _samples(
    group: ScoredGroup, advantages: GroupAdvantages, numbers: Iterator[int]
) -> Iterator[Sample]:
    prompt_ids = group.prompt.token_ids
    assert len(prompt_ids) > 0, "the first response token needs one that predicts it"
    for i, completion in enumerate(group.rollout.completions):
        assert len(completion.token_ids) == len(completion.logprobs)
        number = next(numbers)
        if advantages.valid[i]:
            yield Sample(
                number=number,
                prompt_ids=prompt_ids,
                response_ids=completion.token_ids,
                old_logprobs=completion.logprobs,
                counted=completion.counted,
                advantage=advantages.advantages[i],
            )


def _balance(samples: Sequence[Sample], ranks: int) -> list[list[Sample]]:
    """Longest first, each to the rank with the fewest tokens so far; every share ends up sorted,
    so micro-batches hold samples of similar length, and the one that needs most memory is first."""
    shares: list[list[Sample]] = [[] for _ in range(ranks)]
    loads = [(0, rank) for rank in range(ranks)]
    for sample in sorted(samples, key=lambda s: s.length, reverse=True):
        tokens, rank = loads[0]
        shares[rank].append(sample)
        heapq.heapreplace(loads, (tokens + sample.length, rank))
    return shares


@dataclass(frozen=True, slots=True)
class _Limit:
    """The size of a micro-batch."""

    samples: int
    tokens: int | None
    """Padding included; replaces the limit of samples."""
    multiple_of: int

    def split(self, share: Sequence[Sample]) -> Iterator[Sequence[Sample]]:
        """Micro-batches of samples that are sorted by length, longest first."""
        start = 0
        while start < len(share):
            size = self.samples
            if self.tokens is not None:
                size = max(1, self.tokens // _padded(share[start].length, self.multiple_of))
            yield share[start : start + size]
            start += size


def _padded(length: int, multiple_of: int) -> int:
    return -(-length // multiple_of) * multiple_of


def pad_samples(samples: Sequence[Sample], pad_token_id: int, multiple_of: int) -> MicroBatch:
    """Pad samples to one width; without samples one padding row with an empty mask."""
    lengths = np.array([s.length for s in samples] or [_EMPTY_LENGTH], dtype=np.int64)
    shape = (len(lengths), _padded(int(lengths.max()), multiple_of))
    input_ids = np.full(shape, pad_token_id, dtype=np.int64)
    mask = np.zeros(shape, dtype=np.bool_)
    old_logprobs = np.zeros(shape, dtype=np.float32)
    advantages = np.zeros(len(lengths), dtype=np.float32)
    for row, sample in enumerate(samples):
        start, end = len(sample.prompt_ids), sample.length
        input_ids[row, :start] = sample.prompt_ids
        input_ids[row, start:end] = sample.response_ids
        mask[row, start:end] = sample.counted
        old_logprobs[row, start:end] = np.where(sample.counted, sample.old_logprobs, 0.0)
        advantages[row] = sample.advantage
    return MicroBatch(input_ids, lengths, mask, old_logprobs, advantages)


def _statistics(
    groups: Sequence[ScoredGroup], advantages: Sequence[GroupAdvantages], *, trained_samples: int
) -> StepStatistics:
    completions = [c for g in groups for c in g.rollout.completions]
    lengths = [c.sampled_tokens for c in completions]
    nonfinite = [
        length - int(np.count_nonzero(c.counted))
        for c, length in zip(completions, lengths, strict=True)
    ]
    scores = [s for g in groups for s in g.scores if _is_scored(s)]
    return StepStatistics(
        samples=len(completions),
        scored_samples=len(scores),
        unscored=dict(Counter(_reason(s) for g in groups for s in g.scores if not _is_scored(s))),
        trained_samples=trained_samples,
        prompt_tokens=sum(len(g.prompt.token_ids) for g in groups),
        response_tokens=sum(lengths),
        reward_mean=_mean([s.reward for s in scores if s.reward is not None]),
        reward_std=_mean([a.std for a in advantages]),
        zero_std_fraction=_mean([not a.has_signal for a in advantages]),
        accuracy_mean=_mean([s.accuracy for s in scores]),
        format_accuracy_mean=_mean([s.format_accuracy for s in scores]),
        response_tokens_mean=_mean(lengths),
        truncated_fraction=_mean([c.finish_reason is FinishReason.LENGTH for c in completions]),
        reward_parts=_part_means(scores),
        nonfinite_samples=sum(0 < n == size for n, size in zip(nonfinite, lengths, strict=True)),
        nonfinite_tokens=sum(nonfinite),
    )


def _part_means(scores: Sequence[Score]) -> dict[str, float]:
    """Means over the scored completions to which a part applies."""
    names = dict.fromkeys(name for score in scores for name in score.parts)
    return {name: _mean([s.parts[name] for s in scores if name in s.parts]) for name in names}


def _is_scored(score: Score) -> bool:
    return score.reward is not None and bool(np.isfinite(score.reward))


def _reason(score: Score) -> str:
    return score.error or "not finite"


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0
