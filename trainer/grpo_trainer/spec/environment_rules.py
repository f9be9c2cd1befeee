"""Rules of environments across fields."""

from typing import TYPE_CHECKING

from .faults import FaultKind
from .reward import RewardType
from .rule import Operand, Rule, field_value

if TYPE_CHECKING:
    from .job import GRPOJobSpec

_HERE = "self.environment"
_MAX_NEW_TOKENS = Operand(
    "self.sampling.maxNewTokens", lambda spec: field_value(spec, "sampling.maxNewTokens")
)


def _an_address(spec: "GRPOJobSpec") -> bool:
    environment = spec.environment
    return environment is None or environment.url is not None or environment.module is not None


def _one_address(spec: "GRPOJobSpec") -> bool:
    environment = spec.environment
    return environment is None or environment.url is None or environment.module is None


def _pods_of_a_module(spec: "GRPOJobSpec") -> bool:
    environment = spec.environment
    return environment is None or environment.pods is None or environment.module is not None


def _room_for_a_turn(spec: "GRPOJobSpec") -> bool:
    environment = spec.environment
    return environment is None or environment.max_episode_tokens >= spec.sampling.max_new_tokens


ENVIRONMENT_RULES: tuple[Rule, ...] = (
    Rule(
        field="environment",
        cel=f"!has({_HERE}) || has({_HERE}.url) || has({_HERE}.module)",
        holds=_an_address,
        must="must have url or module",
        kind=FaultKind.REQUIRED,
    ),
    Rule(
        field="environment.module",
        cel=f"!has({_HERE}) || !has({_HERE}.url) || !has({_HERE}.module)",
        holds=_one_address,
        must="only without url",
        kind=FaultKind.FORBIDDEN,
    ),
    Rule(
        field="environment.pods",
        cel=f"!has({_HERE}) || !has({_HERE}.pods) || has({_HERE}.module)",
        holds=_pods_of_a_module,
        must="only with module",
        kind=FaultKind.FORBIDDEN,
    ),
    Rule(
        field="environment.maxEpisodeTokens",
        cel=f"!has({_HERE}) || {_HERE}.maxEpisodeTokens >= self.sampling.maxNewTokens",
        holds=_room_for_a_turn,
        must="must be at least sampling.maxNewTokens ({}), the length of one turn",
        operands=(_MAX_NEW_TOKENS,),
    ),
    Rule(
        field="reward.type",
        cel=f"!has({_HERE}) || self.reward.type == 'environment'",
        holds=lambda s: s.environment is None or s.reward.type is RewardType.ENVIRONMENT,
        must="must be environment with spec.environment, which scores its episodes",
    ),
    Rule(
        field="environment",
        cel=f"has({_HERE}) || self.reward.type != 'environment'",
        holds=lambda s: s.environment is not None or s.reward.type is not RewardType.ENVIRONMENT,
        must="reward.type environment needs an environment with url or module",
        kind=FaultKind.REQUIRED,
    ),
    Rule(
        field="reward.parts",
        cel="!has(self.reward.parts) || self.reward.parts.all(p, p.type != 'environment')",
        holds=lambda s: all(p.type is not RewardType.ENVIRONMENT for p in s.reward.parts),
        must="must have no part of type environment, which is a reward of its own",
        shown=False,
    ),
)
