"""Episodes as records: observations leave loss, denominators, statistics and penalties, and stay
in what the model reads."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.algorithm.batching import build_step
from grpo_trainer.driver.measure import logged_samples
from grpo_trainer.messages import Message, Opening, Prompt, Rollout, Row, Score
from grpo_trainer.rewards import shape
from unit.algorithm.builders import PAD, algorithm, group
from unit.environments.builders import episode, observed_groups


def build(groups):
    return build_step(
        groups, data_parallel=1, microbatch=4, algorithm=algorithm(), pad_token_id=PAD
    )


@given(st.lists(observed_groups(), min_size=1, max_size=3))
def test_observations_change_neither_denominators_nor_advantages_nor_statistics(pairs):
    plain, observed = (build([pair[i] for pair in pairs]) for i in (0, 1))
    assert observed.denominators == plain.denominators
    assert observed.statistics == plain.statistics
    assert all(map(np.array_equal, observed.advantages, plain.advantages))


@given(st.lists(observed_groups(), min_size=1, max_size=3))
def test_the_loss_has_exactly_the_log_probabilities_of_the_sampled_tokens(pairs):
    def counted(groups):
        rows = [
            batch.old_logprobs[i][batch.mask[i]].tolist()
            for batch in build(groups).shards[0]
            for i in range(len(batch.lengths))
        ]
        return sorted(row for row in rows if row)

    assert counted([g for _, g in pairs]) == counted([g for g, _ in pairs])


def test_the_model_reads_observations_where_they_were():
    parts = [(True, [3, 4]), (False, [5, 6]), (True, [2])]
    [[batch]] = build([group([1.0, 0.0], [episode(parts)] * 2, prompt_ids=[1])]).shards
    assert batch.input_ids[0].tolist() == [1, 3, 4, 5, 6, 2]
    assert batch.mask[0].tolist() == [False, True, True, False, False, True]
    assert batch.old_logprobs[0].tolist() == [0, -1, -1, 0, 0, -1]


def test_an_observation_is_no_token_without_a_finite_log_probability():
    parts = [(True, [3, 4]), (False, [5, 6]), (True, [2])]
    statistics = build([group([1.0, 0.0], [episode(parts)] * 2)]).statistics
    assert statistics.response_tokens_mean == 3
    assert (statistics.nonfinite_tokens, statistics.nonfinite_samples) == (0, 0)


def test_a_finite_log_probability_brings_no_observation_into_the_loss():
    parts = [(True, [3]), (False, [5, 6]), (True, [2])]
    sure = replace(episode(parts), logprobs=np.full(4, -1.0, np.float32))
    assert build([group([1.0, 0.0], [sure] * 2)]).denominators.tokens == 4


def test_the_overlong_penalty_counts_sampled_tokens():
    parts = [(True, [3] * 10), (False, [5] * 100), (True, [2] * 10)]
    setting = replace(algorithm(), overlong=True, overlong_buffer_tokens=20)
    options = {"max_new_tokens": 30, "max_reward": 2.0}
    [score] = shape([Score(1.0, 1.0, 1.0)], [episode(parts)], setting, **options)
    assert score.reward == pytest.approx(0.5)


def test_logged_completions_count_sampled_tokens():
    scored = group([1.0], [episode([(True, [3, 4]), (False, [5, 6, 1]), (True, [2])])])
    scored = replace(scored, prompt=Prompt(Row("r", (Message("user", "?"),)), np.array([1])))
    [logged] = logged_samples([scored], build([scored]))
    assert logged.response_tokens == 3 and not math.isnan(logged.advantage)


def test_the_opening_of_an_environment_replaces_the_prompt_of_the_row():
    prompt = Prompt(Row("r", ()), np.empty(0, np.int32))
    opening = Opening(np.array([7, 8], np.int32), (Message("user", "2+2="),))
    opened = Rollout("r", (), opening).opened(prompt)
    assert opened.token_ids.tolist() == [7, 8]
    assert opened.row.messages[-1].content == "2+2="
    assert Rollout("r", ()).opened(prompt) is prompt
