"""Rules across the fields of a reward."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .faults import FaultKind
from .reward import DEFAULT_TYPE, RewardPartSpec, RewardSpec, RewardType
from .rule import Rule

if TYPE_CHECKING:
    from .job import GRPOJobSpec

_RECORDS = {
    RewardType.CUSTOM: "{{module, function}}",
    RewardType.HTTP: "{{url}}",
    RewardType.JUDGE: "{{url, model, prompt, pattern}}",
}
"""Types with a record of their own, named after the type, and its required fields."""


def _has(part: RewardSpec | RewardPartSpec, kind: RewardType) -> bool:
    return getattr(part, kind.value) is not None


def _records(kind: RewardType, needs: str) -> Iterator[Rule]:
    yield Rule(
        field=f"reward.{kind}",
        cel=f"self.reward.type != '{kind}' || has(self.reward.{kind})",
        holds=lambda s: s.reward.type is not kind or _has(s.reward, kind),
        must=f"type {kind} needs {needs}",
        kind=FaultKind.REQUIRED,
    )
    yield Rule(
        field=f"reward.{kind}",
        cel=f"self.reward.type == '{kind}' || !has(self.reward.{kind})",
        holds=lambda s: s.reward.type is kind or not _has(s.reward, kind),
        must=f"only with type {kind}",
        kind=FaultKind.FORBIDDEN,
    )
    yield Rule(
        field="reward.parts",
        cel="!has(self.reward.parts) || "
        f"self.reward.parts.all(p, (p.type == '{kind}') == has(p.{kind}))",
        holds=lambda s: all((p.type is kind) == _has(p, kind) for p in s.reward.parts),
        must=f"must have {kind}: {needs} in the parts of type {kind} and in no other",
        shown=False,
    )


def _names_differ(spec: "GRPOJobSpec") -> bool:
    names = [part.name for part in spec.reward.parts]
    return len(set(names)) == len(names)


_PARTS = (
    Rule(
        field="reward.type",
        cel="!has(self.reward.parts) || size(self.reward.parts) == 0 || "
        f"self.reward.type == '{DEFAULT_TYPE}'",
        holds=lambda s: not s.reward.parts or s.reward.type is DEFAULT_TYPE,
        must="with parts, which replace it",
        kind=FaultKind.FORBIDDEN,
    ),
    Rule(
        field="reward.parts",
        cel="!has(self.reward.parts) || self.reward.parts.all(p, "
        "self.reward.parts.exists_one(q, q.name == p.name))",
        holds=_names_differ,
        must="must have a different name for each part",
        shown=False,
    ),
    Rule(
        field="reward.parts",
        cel="!has(self.reward.parts) || size(self.reward.parts) == 0 || "
        "self.reward.parts.exists(p, p.weight > 0.0)",
        holds=lambda s: not s.reward.parts or any(p.weight > 0 for p in s.reward.parts),
        must="must have a part with a weight greater than 0",
        shown=False,
    ),
)

REWARD_RULES: tuple[Rule, ...] = (
    *(rule for kind, needs in _RECORDS.items() for rule in _records(kind, needs)),
    *_PARTS,
)
