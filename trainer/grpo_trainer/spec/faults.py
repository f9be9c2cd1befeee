"""A fault in a manifest, worded as the Kubernetes API server words its field errors."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_MAX_SHOWN = 120


class FaultKind(StrEnum):
    """The part of a message between the field and the explanation."""

    INVALID = "Invalid value"
    REQUIRED = "Required value"
    FORBIDDEN = "Forbidden"


@dataclass(frozen=True, slots=True)
class Fault:
    """One field that is invalid, missing or out of place."""

    path: str
    value: Any
    """Shown, as JSON and shortened, for an invalid value only."""
    must: str
    """What the value must be, what is required, or why the field is forbidden; may be empty."""
    kind: FaultKind = FaultKind.INVALID
    reads: tuple[str, ...] = ()
    """Fields that a rule across fields compares; not reported where one of them is invalid."""

    def __str__(self) -> str:
        value = [_shown(self.value)] if self.kind is FaultKind.INVALID else []
        return ": ".join(filter(None, (self.path, self.kind, *value, self.must)))


def invalid(path: str, value: Any, must: str) -> Fault:
    """`spec.x: Invalid value: 3: must be ...`; `must` begins with "must"."""
    return Fault(path, value, must)


def required(path: str, detail: str = "") -> Fault:
    """`spec.x: Required value: detail`."""
    return Fault(path, None, detail, FaultKind.REQUIRED)


def forbidden(path: str, detail: str) -> Fault:
    """`spec.x: Forbidden: detail`."""
    return Fault(path, None, detail, FaultKind.FORBIDDEN)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
