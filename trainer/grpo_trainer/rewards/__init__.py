"""Rewards: how completions are scored, in processes that may be killed, and how rewards are
shaped."""

from .base import RIGHT_REWARD, WRONG_REWARD, Column, Reward, RewardFunction
from .registry import (
    check_rows,
    make_reward,
    max_reward,
    reward_class,
    stop_strings,
    system_prompt,
)
from .scorer import Scorer
from .shaping import overlong_penalty, shape

__all__ = [
    "RIGHT_REWARD",
    "WRONG_REWARD",
    "Column",
    "Reward",
    "RewardFunction",
    "Scorer",
    "check_rows",
    "make_reward",
    "max_reward",
    "overlong_penalty",
    "reward_class",
    "shape",
    "stop_strings",
    "system_prompt",
]
