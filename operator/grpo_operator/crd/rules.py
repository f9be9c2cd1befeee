"""Validation rules of the definition in CEL: names, rules across fields, immutable fields.

The rules across fields are `grpo_trainer.spec.RULES`. The API server writes the field and the kind
of the error before each message.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.alias_generators import to_camel

from grpo_trainer.spec import MAX_NAME_LENGTH, MUTABILITY, PRESETS, Mutable, Phase, Rule
from grpo_trainer.spec.base import NAME_PATTERN
from grpo_trainer.spec.faults import FaultKind
from grpo_trainer.spec.presets import PRESET_FIELDS

from .schema import Schema

_PRESET_VALUES: Mapping[str, Mapping[str, Any]] = {
    f"spec.algorithm.{to_camel(name)}": {
        str(key): getattr(preset, name) for key, preset in PRESETS.items()
    }
    for name in PRESET_FIELDS
}
"""Fields whose value is the preset's when absent, with that of each preset."""

NAME_RULES: tuple[Schema, ...] = (
    {
        "rule": f"self.metadata.name.size() <= {MAX_NAME_LENGTH}",
        "message": f"metadata.name: must have at most {MAX_NAME_LENGTH} characters, because the "
        "RayCluster is named <name>-<8 digits> and its name has at most 53",
    },
    {
        "rule": f"self.metadata.name.matches('{NAME_PATTERN}')",
        "message": "metadata.name: must consist of lower-case letters, digits and '-', begin with "
        "a letter and end with a letter or digit",
    },
)

_WITHOUT_PODS = [str(Phase.PENDING), str(Phase.SUSPENDED)]
"""Phases in which a job with `suspend` has no pods: before the operator has seen it, and after."""

# Without a reason the API server writes "Invalid value".
_REASONS = {
    FaultKind.REQUIRED: "FieldValueRequired",
    FaultKind.FORBIDDEN: "FieldValueForbidden",
}


def validation(rule: Rule) -> Schema:
    """A rule across fields as an item of `x-kubernetes-validations` of the spec.

    For an object the API server shows its type in place of its value, so the message begins with
    the value of the field.
    """
    schema: Schema = {"rule": rule.cel, "fieldPath": f".{rule.field}"}
    if rule.kind in _REASONS:
        return schema | {"reason": _REASONS[rule.kind], "message": rule.must.format()}
    if not rule.shown:
        return schema | {"message": rule.must}
    must = rule.must.format(*("%s" for _ in rule.operands)).replace("'", r"\'")
    values = ", ".join((f"self.{rule.field}", *(operand.cel for operand in rule.operands)))
    return schema | {"messageExpression": f"'%s: {must}'.format([{values}])"}


def immutability(schema: Schema, path: str = "spec") -> Iterator[tuple[Schema, Schema]]:
    """Each object of a spec's schema with a transition rule for each of its immutable leaves.

    A field without a default is a leaf: a rule on the field alone would not run when the field is
    added or removed, so the rule is on the object that contains it.
    """
    for name, child in schema["properties"].items():
        here = f"{path}.{name}"
        if here in MUTABILITY:
            continue
        if "properties" in child and "default" in child:
            yield from immutability(child, here)
            continue
        always = "default" in child or name in schema.get("required", ())
        preset = _PRESET_VALUES.get(here)
        same = _effective(name, preset) if preset else _same("", name, always=always)
        message = f"{here} is immutable; create a new GRPOJob"
        yield schema, {"rule": same, "fieldPath": f".{name}", "message": message}


def mutable_while_suspended(root: Schema) -> Iterator[Schema]:
    """A transition rule of the root for each field that may change only while no pods exist.

    The root alone shows the rules both spec and status; a change of the spec leaves the status.
    """
    phase = "self.status.phase"
    idle = f"!has(self.status) || !has({phase}) || {phase} in {_WITHOUT_PODS}"
    suspended = f"(oldSelf.spec.suspend && ({idle}))"
    for path in sorted(p for p, when in MUTABILITY.items() if when is Mutable.SUSPENDED):
        parent, _, name = path.rpartition(".")
        schema = _at(root, parent)
        always = "default" in schema["properties"][name] or name in schema.get("required", ())
        yield {
            "rule": f"{suspended} || ({_same(f'{parent}.', name, always=always)})",
            "fieldPath": f".{path}",
            "reason": _REASONS[FaultKind.FORBIDDEN],
            "message": "may change only while the job is suspended: set suspend and wait for the "
            f"phase {Phase.SUSPENDED}",
        }


def _same(prefix: str, name: str, *, always: bool) -> str:
    """Whether a field is as before; without `always` it may be absent."""
    new, old = f"self.{prefix}{name}", f"oldSelf.{prefix}{name}"
    if always:
        return f"{new} == {old}"
    return f"has({new}) == has({old}) && (!has({new}) || {new} == {old})"


def _effective(name: str, presets: Mapping[str, Any]) -> str:
    """Whether the value is as before, where an absent one is the preset's.

    Earlier definitions stored defaults for fields that are absent now.
    """
    table = ", ".join(f"'{key}': {json.dumps(value)}" for key, value in presets.items())
    new, old = (
        f"(has({it}.{name}) ? {it}.{name} : {{{table}}}[{it}.name])" for it in ("self", "oldSelf")
    )
    return f"{new} == {old}"


def _at(root: Schema, path: str) -> Schema:
    for part in path.split("."):
        root = root["properties"][part]
    return root


def attach(schema: Schema, rule: Schema) -> None:
    """Add a rule to an object of the schema."""
    rules: list[Any] = schema.setdefault("x-kubernetes-validations", [])
    rules.append(rule)
