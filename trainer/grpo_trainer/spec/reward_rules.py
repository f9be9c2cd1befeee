"""Rules across the fields of a reward."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .faults import FaultKind
from .reward import DEFAULT_TYPE, RewardPartSpec, RewardSpec, RewardType
from .rule import Rule
from .training import DatasetSpec

if TYPE_CHECKING:
    from .job import GRPOJobSpec

_RECORDS = {
    RewardType.CUSTOM: "{{module, function}}",
    RewardType.HTTP: "{{url}}",
    RewardType.JUDGE: "{{url, model, prompt, pattern}}",
}
"""Types with a record of their own, named after the type, and its required fields."""


Read = Callable[["GRPOJobSpec"], RewardSpec | None]


def _has(part: RewardSpec | RewardPartSpec, kind: RewardType) -> bool:
    return getattr(part, kind.value) is not None


def _holds(read: Read, check: Callable[[RewardSpec], bool]) -> Callable[["GRPOJobSpec"], bool]:
    """A check of a reward that may be absent."""

    def holds(spec: "GRPOJobSpec") -> bool:
        reward = read(spec)
        return reward is None or check(reward)

    return holds


def _names_differ(reward: RewardSpec) -> bool:
    names = [part.name for part in reward.parts]
    return len(set(names)) == len(names)


def _records(field: str, absent: str, read: Read, kind: RewardType, needs: str) -> Iterator[Rule]:
    here = f"self.{field}"
    yield Rule(
        field=f"{field}.{kind}",
        cel=f"{absent}{here}.type != '{kind}' || has({here}.{kind})",
        holds=_holds(read, lambda r: r.type is not kind or _has(r, kind)),
        must=f"type {kind} needs {needs}",
        kind=FaultKind.REQUIRED,
    )
    yield Rule(
        field=f"{field}.{kind}",
        cel=f"{absent}{here}.type == '{kind}' || !has({here}.{kind})",
        holds=_holds(read, lambda r: r.type is kind or not _has(r, kind)),
        must=f"only with type {kind}",
        kind=FaultKind.FORBIDDEN,
    )
    yield Rule(
        field=f"{field}.parts",
        cel=f"{absent}!has({here}.parts) || "
        f"{here}.parts.all(p, (p.type == '{kind}') == has(p.{kind}))",
        holds=_holds(read, lambda r: all((p.type is kind) == _has(p, kind) for p in r.parts)),
        must=f"must have {kind}: {needs} in the parts of type {kind} and in no other",
        shown=False,
    )


def _parts(field: str, absent: str, read: Read) -> Iterator[Rule]:
    here = f"self.{field}"
    none = f"{absent}!has({here}.parts) || size({here}.parts) == 0 || "
    yield Rule(
        field=f"{field}.type",
        cel=f"{none}{here}.type == '{DEFAULT_TYPE}'",
        holds=_holds(read, lambda r: not r.parts or r.type is DEFAULT_TYPE),
        must="with parts, which replace it",
        kind=FaultKind.FORBIDDEN,
    )
    yield Rule(
        field=f"{field}.parts",
        cel=f"{none}{here}.parts.all(p, {here}.parts.exists_one(q, q.name == p.name))",
        holds=_holds(read, _names_differ),
        must="must have a different name for each part",
        shown=False,
    )
    yield Rule(
        field=f"{field}.parts",
        cel=f"{none}{here}.parts.exists(p, p.weight > 0.0)",
        holds=_holds(read, lambda r: not r.parts or any(p.weight > 0 for p in r.parts)),
        must="must have a part with a weight greater than 0",
        shown=False,
    )


def _rules(field: str, absent: str, read: Read) -> Iterator[Rule]:
    """The rules of the reward at `field`; the CEL `absent` holds where there is none."""
    for kind, needs in _RECORDS.items():
        yield from _records(field, absent, read, kind, needs)
    yield from _parts(field, absent, read)


def _set_names_differ(spec: "GRPOJobSpec") -> bool:
    names = [*spec.evaluation.datasets, *(one.name for one in spec.evaluation.sets)]
    return len(set(names)) == len(names)


_SETS = "self.evaluation.sets"
_DATASET = DatasetSpec()
_DEFAULTS = {
    "path": _DATASET.path,
    "promptColumn": _DATASET.prompt_column,
    "answerColumn": _DATASET.answer_column,
    "testsColumn": _DATASET.tests_column,
}
_OPTIONAL = ("promptTemplate", "answerPattern")
_EVALUATION = (
    Rule(
        field="evaluation.sets",
        cel=f"!has({_SETS}) || {_SETS}.all(s, {_SETS}.exists_one(t, t.name == s.name) && "
        "!(has(self.evaluation.datasets) && s.name in self.evaluation.datasets))",
        holds=_set_names_differ,
        must="must have a different name for each set, datasets included",
        shown=False,
    ),
    Rule(
        field="dataset",
        cel="!has(self.datasets) || size(self.datasets) == 0 || ("
        + " && ".join(
            [
                *(f"self.dataset.{name} == '{value}'" for name, value in _DEFAULTS.items()),
                *(f"!has(self.dataset.{name})" for name in _OPTIONAL),
            ]
        )
        + ")",
        holds=lambda s: not s.datasets or s.dataset == _DATASET,
        must="with datasets, which replace it",
        kind=FaultKind.FORBIDDEN,
    ),
    Rule(
        field="evaluation.reward",
        cel="!has(self.environment) || !has(self.evaluation.reward)",
        holds=lambda s: s.environment is None or s.evaluation.reward is None,
        must="with environment, which scores its episodes",
        kind=FaultKind.FORBIDDEN,
    ),
)

REWARD_RULES: tuple[Rule, ...] = (
    *_rules("reward", "", lambda spec: spec.reward),
    *_rules("evaluation.reward", "!has(self.evaluation.reward) || ", lambda s: s.evaluation.reward),
    *_EVALUATION,
)
