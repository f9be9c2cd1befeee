"""Rewards: how completions are scored, in processes that may be killed, and how rewards are
shaped."""

from ..spec.reward import RIGHT_REWARD, WRONG_REWARD
from .base import Column, LocalReward, Reward, RewardFunction, RowNeeds
from .registry import (
    check_rows,
    code_protection,
    make_reward,
    markers,
    max_reward,
    reach_services,
    renders_prompt,
    reward_class,
    row_needs,
    services,
    stop_strings,
    system_prompt,
)
from .scorer import Scorer, Scorers
from .shaping import overlong_penalty, shape

__all__ = [
    "RIGHT_REWARD",
    "WRONG_REWARD",
    "Column",
    "LocalReward",
    "Reward",
    "RewardFunction",
    "RowNeeds",
    "Scorer",
    "Scorers",
    "check_rows",
    "code_protection",
    "make_reward",
    "markers",
    "max_reward",
    "overlong_penalty",
    "reach_services",
    "renders_prompt",
    "reward_class",
    "row_needs",
    "services",
    "shape",
    "stop_strings",
    "system_prompt",
]
