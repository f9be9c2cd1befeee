"""Every reward type has its own module, and the defaults that depend on it come from there."""

import pytest

from grpo_trainer.rewards import Reward, reward_class, stop_strings
from grpo_trainer.spec import GRPOJobSpec, RewardType


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
