"""Every reward type has its own module, and the defaults that depend on it come from there."""

import pytest

from grpo_trainer.rewards import (
    Column,
    Reward,
    markers,
    max_reward,
    reward_class,
    row_needs,
    stop_strings,
    system_prompt,
)
from grpo_trainer.spec import GRPOJobSpec, RewardSpec, RewardType


@pytest.mark.parametrize("reward", RewardType)
def test_a_reward_type_is_implemented_by_the_module_of_its_name(reward):
    found = reward_class(reward)
    assert issubclass(found, Reward)
    assert found.__module__ == f"grpo_trainer.rewards.{reward}"


@pytest.mark.parametrize(
    ("spec", "texts"),
    [
        ({}, ("</answer>",)),
        ({"reward": {"type": "boxed"}}, ()),
        ({"sampling": {"stopStrings": []}}, ()),
        ({"reward": {"type": "boxed"}, "sampling": {"stopStrings": ["END"]}}, ("END",)),
    ],
)
def test_completions_stop_at_the_end_of_an_answer_by_default(spec, texts):
    assert stop_strings(GRPOJobSpec.model_validate(spec)) == texts


PARTS = RewardSpec.model_validate(
    {
        "parts": [
            {"name": "right", "type": "boxed", "weight": 2.0},
            {"name": "program", "type": "code", "weight": 0.5},
            {"name": "brief", "type": "custom", "weight": -1.0, "custom": {"module": "m"}},
        ]
    }
)


def test_the_first_part_gives_system_prompt_and_stop_strings():
    assert system_prompt(PARTS) == reward_class(RewardType.BOXED).system_prompt
    assert stop_strings(GRPOJobSpec(reward=PARTS)) == ()
    assert PARTS.main_type is RewardType.BOXED


def test_rows_need_the_columns_of_all_parts():
    needs = row_needs(PARTS)
    assert needs.columns == {Column.ANSWER, Column.TESTS}
    assert needs.reads_row


def test_the_tokenizer_has_to_decode_the_markers_of_all_parts():
    assert markers(PARTS) == ("\\boxed{", "```python")


def test_the_maximum_reward_is_the_sum_of_the_positive_weights():
    assert max_reward(PARTS) == 2.5
    assert max_reward(RewardSpec()) == 10.0
