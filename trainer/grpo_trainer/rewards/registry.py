"""From a reward's spec to its class, and the defaults that depend on the class."""

from collections.abc import Iterable
from importlib import import_module

from ..messages import Row
from ..spec import GRPOJobSpec
from ..spec.training import RewardSpec, RewardType
from .base import Reward, RewardFunction


def reward_class(reward: RewardType) -> type[Reward]:
    """The class of a reward type, from the module of this package with the same name."""
    found: type[Reward] = import_module(f"{__package__}.{reward.value}").REWARD
    return found


def make_reward(spec: RewardSpec) -> RewardFunction:
    """The function that scores one completion, loaded in this process.

    Raises InvalidInputError if a custom function cannot be loaded, or programs cannot be confined.
    """
    reward = reward_class(spec.type)(spec)
    reward.load()
    return reward.score


def check_rows(rows: Iterable[Row], spec: RewardSpec) -> None:
    """Refuse rows that no completion can answer, and a reward that cannot be used.

    Blocks, also where an event loop runs. Raises InvalidDataError and InvalidInputError.
    """
    reward_class(spec.type)(spec).check(list(rows))


def system_prompt(spec: RewardSpec) -> str:
    """The system message of every prompt; empty adds none."""
    given = spec.system_prompt
    return reward_class(spec.type).system_prompt if given is None else given


def stop_strings(spec: GRPOJobSpec) -> tuple[str, ...]:
    """Texts that end a completion."""
    given = spec.sampling.stop_strings
    return reward_class(spec.reward.type).stop_strings if given is None else given


def max_reward(spec: RewardSpec) -> float:
    """Reward of a right completion."""
    return reward_class(spec.type).max_reward
