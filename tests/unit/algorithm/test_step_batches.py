"""From scored groups to micro-batches: layout, masked completions, balance over ranks, statistics.

That any split gives the same gradient is in test_split_invariance.py.
"""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_trainer.algorithm.batching import build_step
from grpo_trainer.algorithm.totals import Denominators
from grpo_trainer.messages import FinishReason
from unit.algorithm.builders import PAD, algorithm, completion, group, groups


def build(scored, **overrides):
    options = {"data_parallel": 1, "microbatch": 4, "algorithm": algorithm(), "pad_token_id": PAD}
    return build_step(scored, **{**options, **overrides})


def rows(step):
    """(ids, mask, old log-probabilities, advantage) of every row that counts somewhere."""
    return [
        (batch.input_ids[i, : batch.lengths[i]], batch.mask[i], batch.old_logprobs[i], float(a))
        for shard in step.shards
        for batch in shard
        for i, a in enumerate(batch.advantages)
        if batch.mask[i].any()
    ]


def test_a_row_is_prompt_completion_and_padding_with_the_completion_masked_in():
    completions = [completion([5, 6], [-0.5, -0.25]), completion([3], [-2.0])]
    [[batch]] = build([group([1.0, 0.0], completions, prompt_ids=[1, 2])], multiple_of=3).shards
    assert batch.input_ids.tolist() == [[1, 2, 5, 6, PAD, PAD], [1, 2, 3, PAD, PAD, PAD]]
    assert batch.lengths.tolist() == [4, 3]
    assert batch.mask.nonzero()[0].tolist() == [0, 0, 1]
    assert batch.mask.nonzero()[1].tolist() == [2, 3, 2]
    assert batch.old_logprobs.tolist() == [[0, 0, -0.5, -0.25, 0, 0], [0, 0, -2.0, 0, 0, 0]]
    assert batch.advantages == pytest.approx([0.707, -0.707], abs=1e-3)
    types = [batch.input_ids, batch.lengths, batch.mask, batch.old_logprobs, batch.advantages]
    assert [str(a.dtype) for a in types] == ["int64", "int64", "bool", "float32", "float32"]


def test_a_padding_id_within_a_completion_is_a_token_like_any_other():
    step = build([group([1.0, 0.0], [completion([PAD, 5, PAD]), completion([5])])])
    assert step.denominators == Denominators(samples=2, tokens=4)


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_completion_that_could_not_be_scored_leaves_the_loss_and_the_denominators(missing):
    step = build([group([1.0, missing, 0.0])])
    assert step.denominators == Denominators(samples=2, tokens=4)
    assert len(rows(step)) == 2


def test_a_truncated_completion_leaves_loss_denominators_and_group_mean_when_masked():
    truncated = completion([3, 4, 5], finish_reason=FinishReason.LENGTH)
    completions = [completion([3]), completion([4]), completion([5]), truncated]
    step = build(
        [group([1.0, 1.0, 0.0, 0.0], completions)], algorithm=algorithm(mask_truncated=True)
    )
    alone = build([group([1.0, 1.0, 0.0], completions[:3])])
    assert step.denominators == Denominators(samples=3, tokens=3)
    assert [r[3] for r in rows(step)] == [r[3] for r in rows(alone)]
    assert step.advantages[0].tolist()[3] == 0
    assert step.statistics.truncated_fraction == 0.25


def test_a_truncated_completion_is_trained_on_when_not_masked():
    truncated = completion([3, 4, 5], finish_reason=FinishReason.LENGTH)
    step = build([group([1.0, 0.0], [completion([3]), truncated])])
    assert step.denominators == Denominators(samples=2, tokens=4)


def test_a_completion_that_stops_on_its_last_allowed_token_is_not_truncated():
    step = build([group([1.0, 0.0])], algorithm=algorithm(mask_truncated=True))
    assert step.denominators.samples == 2
    assert step.statistics.truncated_fraction == 0


def test_all_masked_leaves_zero_denominators_and_one_empty_micro_batch_for_each_rank():
    truncated = [completion([3, 4], finish_reason=FinishReason.LENGTH)] * 4
    step = build(
        [group([1.0, 0.0, 1.0, 0.0], truncated)],
        algorithm=algorithm(mask_truncated=True),
        data_parallel=2,
        multiple_of=8,
    )
    assert step.denominators == Denominators(samples=0, tokens=0)
    assert [len(shard) for shard in step.shards] == [1, 1]
    for [batch] in step.shards:
        assert batch.input_ids.tolist() == [[PAD] * 8]
        assert batch.lengths.tolist() == [2]
        assert not batch.mask.any()


def test_no_groups_at_all_make_an_empty_step():
    step = build([], data_parallel=3)
    assert step.denominators == Denominators(samples=0, tokens=0)
    assert [len(shard) for shard in step.shards] == [1, 1, 1]
    assert step.statistics.samples == 0
    assert step.statistics.reward_mean == 0.0


@pytest.mark.parametrize("unknown", [float("nan"), float("-inf"), float("inf")])
def test_a_completion_without_any_finite_logprob_leaves_its_group_and_is_counted(unknown):
    completions = [completion([3]), completion([4]), completion([5])]
    odd = completion([3, 4], [unknown, unknown])
    step = build([group([0.0, 1.0, 0.0, 10.0], [*completions, odd])])
    alone = build([group([0.0, 1.0, 0.0], completions)])
    assert step.denominators == alone.denominators
    assert [r[3] for r in rows(step)] == [r[3] for r in rows(alone)]
    assert step.statistics.reward_std == alone.statistics.reward_std
    assert (step.statistics.nonfinite_samples, step.statistics.nonfinite_tokens) == (1, 2)


def test_a_completion_without_tokens_leaves_its_group_but_is_not_counted_as_non_finite():
    step = build([group([10.0, 0.0, 0.0], [completion([]), completion([3]), completion([4])])])
    assert step.statistics.reward_std == 0.0
    assert (step.statistics.nonfinite_samples, step.statistics.nonfinite_tokens) == (0, 0)


@pytest.mark.parametrize("unknown", [float("nan"), float("-inf"), float("inf")])
def test_a_token_without_a_finite_logprob_leaves_mask_and_denominators(unknown):
    odd = completion([5, 6, 3], [-0.5, unknown, -1.0])
    step = build([group([1.0, 0.0], [odd, completion([4])])])
    ids, mask, old_logprobs, _ = rows(step)[0]
    assert ids.tolist() == [1, 2, 5, 6, 3]
    assert mask.tolist() == [False, False, True, False, True]
    assert old_logprobs.tolist() == [0, 0, -0.5, 0, -1.0]
    assert step.denominators == Denominators(samples=2, tokens=3)
    assert (step.statistics.nonfinite_samples, step.statistics.nonfinite_tokens) == (0, 1)


def test_a_completion_without_any_finite_logprob_is_no_sample():
    completions = [completion([5], [float("nan")]), completion([]), completion([4])]
    step = build([group([1.0, 0.0, 0.0], completions)])
    assert step.denominators == Denominators(samples=1, tokens=1)


def test_samples_without_advantage_skip_the_forward_pass_but_stay_in_the_denominators():
    step = build([group([1.0, 1.0]), group([1.0, 0.0])])
    assert step.denominators == Denominators(samples=4, tokens=8)
    assert len(rows(step)) == step.statistics.trained_samples == 2


def test_samples_without_advantage_are_trained_on_where_there_is_a_kl_term():
    step = build([group([1.0, 1.0]), group([1.0, 0.0])], algorithm=algorithm(kl_coefficient=0.1))
    assert len(rows(step)) == step.statistics.trained_samples == 4


def test_groups_of_constant_reward_are_reported_as_such_although_rewards_differ():
    step = build([group([0.0] * 4), group([3.0] * 4)])
    statistics = step.statistics
    assert not any(a.any() for a in step.advantages)
    assert (statistics.zero_std_fraction, statistics.reward_std) == (1.0, 0.0)
    assert statistics.reward_mean == 1.5


def test_statistics_describe_the_completions():
    truncated = completion([3, 4, 5, 6], finish_reason=FinishReason.LENGTH)
    first = group(
        [4.0, 0.0, None], [completion([3]), truncated, completion([4])], prompt_ids=[1, 2, 3]
    )
    step = build([first, group([2.0, 2.0])])
    statistics = step.statistics
    assert statistics.samples == 5
    assert statistics.scored_samples == 4
    assert statistics.prompt_tokens == 3 + 2
    assert statistics.response_tokens == 1 + 4 + 1 + 2 + 2
    assert statistics.response_tokens_mean == 2.0
    assert statistics.reward_mean == 2.0
    assert statistics.reward_std == pytest.approx(np.std([4, 0], ddof=1) / 2)
    assert statistics.zero_std_fraction == 0.5
    assert statistics.accuracy_mean == 0.75
    assert statistics.format_accuracy_mean == 1.0
    assert statistics.truncated_fraction == 0.2
    assert [len(a) for a in step.advantages] == [3, 2]


@settings(deadline=None)
@given(st.lists(groups(), max_size=5), st.integers(1, 4), st.integers(1, 5), st.integers(1, 4))
def test_every_sample_is_assigned_once_for_any_split(
    scored, data_parallel, microbatch, multiple_of
):
    def described(step):
        return sorted((ids.tolist(), a, int(mask.sum())) for ids, mask, _, a in rows(step))

    step = build(
        scored,
        data_parallel=data_parallel,
        microbatch=microbatch,
        multiple_of=multiple_of,
        skip_zero_advantage=False,
    )
    whole = build(scored, microbatch=100, skip_zero_advantage=False)
    assert described(step) == described(whole)
    assert len(rows(step)) == step.denominators.samples
    assert sum(int(mask.sum()) for _, mask, _, _ in rows(step)) == step.denominators.tokens
    assert len(step.shards) == data_parallel
    assert len({len(shard) for shard in step.shards}) == 1
    for batch in (batch for shard in step.shards for batch in shard):
        assert batch.input_ids.shape[0] <= microbatch
        width = batch.input_ids.shape[1]
        assert width % multiple_of == 0 and width - batch.lengths.max() < multiple_of


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=2, max_size=24), st.integers(1, 4))
def test_the_last_sample_of_the_fullest_rank_had_no_better_place(lengths, data_parallel):
    completions = [completion([3] * n) for n in lengths]
    rewards = [float(i) for i in range(len(lengths))]
    step = build(
        [group(rewards, completions)],
        data_parallel=data_parallel,
        microbatch=100,
        skip_zero_advantage=False,
    )
    shares = [shard[0].lengths[shard[0].mask.any(axis=1)] for shard in step.shards]
    fullest = max(shares, key=sum)
    assert sum(fullest) - min(sum(share) for share in shares) <= min(fullest)


def test_one_long_sample_is_weighed_against_many_short_ones():
    completions = [completion([3] * n) for n in (12, 1, 1, 1, 1)]
    rewards = [0.0, 1.0, 1.0, 1.0, 1.0]
    step = build([group(rewards, completions)], data_parallel=2)
    assert [shard[0].lengths.tolist() for shard in step.shards] == [[14], [3, 3, 3, 3]]


def test_micro_batches_hold_samples_of_like_length_the_longest_first():
    lengths = [1, 9, 2, 8, 1, 9]
    completions = [completion([3] * n) for n in lengths]
    [shard] = build(
        [group([float(i) for i in range(6)], completions)], microbatch=2, skip_zero_advantage=False
    ).shards
    assert [batch.lengths.tolist() for batch in shard] == [[11, 11], [10, 4], [3, 3]]


def test_micro_batches_by_tokens_hold_more_samples_the_shorter_these_are():
    lengths = [1, 9, 2, 8, 1, 9]
    completions = [completion([3] * n) for n in lengths]
    [shard] = build(
        [group([float(i) for i in range(6)], completions)],
        microbatch_tokens=22,
        skip_zero_advantage=False,
    ).shards
    assert [batch.lengths.tolist() for batch in shard] == [[11, 11], [10, 4], [3, 3]]
    assert [batch.input_ids.size for batch in shard] == [22, 20, 6]


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 60), min_size=2, max_size=24),
    st.integers(1, 4),
    st.integers(62, 200),
    st.integers(1, 4),
)
def test_no_micro_batch_has_more_tokens_than_the_limit_and_each_rank_has_as_many(
    lengths, data_parallel, tokens, multiple_of
):
    completions = [completion([3] * n) for n in lengths]
    step = build(
        [group([float(i) for i in range(len(lengths))], completions)],
        data_parallel=data_parallel,
        microbatch_tokens=tokens,
        multiple_of=multiple_of,
        skip_zero_advantage=False,
    )
    assert len(rows(step)) == len(lengths)
    assert len({len(shard) for shard in step.shards}) == 1
    for batch in (batch for shard in step.shards for batch in shard):
        assert batch.input_ids.size <= tokens or len(batch.lengths) == 1


def test_driver_side_modules_do_not_load_torch():
    code = (
        "import sys, grpo_trainer.algorithm.batching, grpo_trainer.algorithm.totals;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
