"""Rewards: how completions are scored, in processes that may be killed, and how rewards are
shaped."""

from .checks import check_answers
from .functions import make_reward
from .scorer import Scorer
from .scores import RIGHT_REWARD, WRONG_REWARD, RewardFunction
from .shaping import overlong_penalty, shape

__all__ = [
    "RIGHT_REWARD",
    "WRONG_REWARD",
    "RewardFunction",
    "Scorer",
    "check_answers",
    "make_reward",
    "overlong_penalty",
    "shape",
]
