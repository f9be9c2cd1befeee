"""The record of a rule across fields."""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .base import Record
from .faults import FaultKind

if TYPE_CHECKING:
    from .job import GRPOJobSpec


@dataclass(frozen=True, slots=True)
class Operand:
    """A number in a message."""

    cel: str
    value: Callable[["GRPOJobSpec"], Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule across fields."""

    field: str
    """Path below `spec` of the field at fault."""
    cel: str
    """Holds for a valid spec, which CEL calls `self` and its previous version `oldSelf`."""
    holds: Callable[["GRPOJobSpec"], bool] | None
    """The same in Python; None where only the API server checks it."""
    must: str
    """The message, with `{}` for each operand."""
    operands: tuple[Operand, ...] = ()
    kind: FaultKind = FaultKind.INVALID
    shown: bool = True
    """Whether CEL can write the value of the field, which the API server itself does not."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Paths of the fields that it compares."""
        paths = re.findall(
            r"self\.([A-Za-z]+(?:\.[A-Za-z]+)*?)(?=\.[a-z_]+\(|[^A-Za-z.]|$)", self.cel
        )
        return tuple(f"spec.{path}" for path in dict.fromkeys(paths))


def field_value(spec: "GRPOJobSpec", path: str) -> Any:
    """The value at a manifest's path below `spec`; None where a record on the way is absent."""
    value: Any = spec
    for part in path.split("."):
        value = getattr(value, re.sub("[A-Z]", lambda m: f"_{m[0].lower()}", part), None)
    if isinstance(value, tuple):
        return [item.plain() if isinstance(item, Record) else item for item in value]
    return value.plain() if isinstance(value, Record) else value


def field(path: str) -> Operand:
    """The value of a field, by its path below `spec`."""
    return Operand(f"self.{path}", lambda spec: field_value(spec, path))


def at_most(path: str, bound: Operand, must: str, *, given: str | None = None) -> Rule:
    """A field is at most a bound, where the optional field `given` is set.

    `must` names the bound, with `{}` for its value.
    """
    return _comparison(path, "<=", bound, f"must be at most {must}", given)


def less_than(path: str, bound: Operand, must: str, *, given: str | None = None) -> Rule:
    """A field is less than a bound; see `at_most`."""
    return _comparison(path, "<", bound, f"must be less than {must}", given)


def multiple(path: str, of: Operand, must: str) -> Rule:
    """A field is a multiple of a number."""
    value = field(path)
    return Rule(
        field=path,
        cel=f"{value.cel} % {of.cel} == 0",
        holds=lambda spec: value.value(spec) % of.value(spec) == 0,
        must=f"must be a multiple of {must}",
        operands=(of,),
    )


_HOLDS: Mapping[str, Callable[[Any, Any], bool]] = {"<=": operator.le, "<": operator.lt}


def _comparison(path: str, sign: str, bound: Operand, must: str, given: str | None) -> Rule:
    value = field(path)

    def holds(spec: "GRPOJobSpec") -> bool:
        absent = given is not None and field_value(spec, given) is None
        return absent or _HOLDS[sign](value.value(spec), bound.value(spec))

    return Rule(
        field=path,
        cel=(f"!has(self.{given}) || " if given else "") + f"{value.cel} {sign} {bound.cel}",
        holds=holds,
        must=must,
        operands=(bound,),
    )
