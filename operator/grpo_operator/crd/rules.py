"""Validation rules of the definition in CEL: names, rules across fields, immutable fields.

The rules across fields are `grpo_trainer.spec.RULES`. The API server writes the field and the kind
of the error before each message.
"""

from collections.abc import Iterator
from typing import Any

from grpo_trainer.spec import MAX_NAME_LENGTH, MUTABLE_FIELDS, Rule
from grpo_trainer.spec.base import NAME_PATTERN
from grpo_trainer.spec.faults import FaultKind

from .schema import Schema

MUTABLE = frozenset(path.removeprefix("spec.") for path in MUTABLE_FIELDS)

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


def immutability(schema: Schema, path: str = "") -> Iterator[tuple[Schema, Schema]]:
    """Each object of a spec's schema with a transition rule for each of its immutable leaves.

    A field without a default is a leaf: a rule on the field alone would not run when the field is
    added or removed, so the rule is on the object that contains it.
    """
    for name, child in schema["properties"].items():
        here = f"{path}.{name}".lstrip(".")
        if here in MUTABLE:
            continue
        if "properties" in child and "default" in child:
            yield from immutability(child, here)
            continue
        same = f"self.{name} == oldSelf.{name}"
        if "default" not in child and name not in schema.get("required", ()):
            same = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || {same})"
        message = f"spec.{here} is immutable; create a new GRPOJob"
        yield schema, {"rule": same, "fieldPath": f".{name}", "message": message}


def attach(schema: Schema, rule: Schema) -> None:
    """Add a rule to an object of the schema."""
    rules: list[Any] = schema.setdefault("x-kubernetes-validations", [])
    rules.append(rule)
