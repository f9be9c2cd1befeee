"""A pydantic record as the structural OpenAPI schema of a custom resource.

Kubernetes allows no `$ref`, no `null` type and no boolean combination of types, and requires the
exclusive bounds of OpenAPI 3.0. Strings, lists and maps get upper bounds: the API server estimates
the cost of a CEL rule from them.
"""

from typing import Any

from pydantic import BaseModel

from grpo_trainer.spec.kubernetes import MEANINGS

MAX_STRING = 4096
MAX_ITEMS = 64
_LONG_STRINGS = {"systemPrompt": 32768, "message": 8192}
_LIST_MAPS = {"env": "name", "imagePullSecrets": "name", "conditions": "type", "images": "role"}
_KEPT = (
    *("description", "type", "format", "enum", "pattern"),
    *("minLength", "minItems", "minimum", "maximum"),
)

_FORMATS = {"integer": "int64", "number": "double"}

Schema = dict[str, Any]


def structural_schema(record: type[BaseModel]) -> Schema:
    """The schema of `record` in the form that a CustomResourceDefinition requires."""
    schema = record.model_json_schema(by_alias=True, mode="validation")
    return _convert("", schema, schema.get("$defs", {}))


def _convert(name: str, node: Schema, defs: dict[str, Schema]) -> Schema:
    node = _without_null(node)
    if "$ref" in node:
        target = defs[node["$ref"].rsplit("/", 1)[1]]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    if "anyOf" in node:
        return _int_or_string(node)
    schema = {key: node[key] for key in _KEPT if key in node}
    if "description" in schema:
        schema["description"] = " ".join(schema["description"].split())
    for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if bound in node:
            schema |= {limit: node[bound], bound: True}
    if node["type"] in _FORMATS:
        schema.setdefault("format", _FORMATS[node["type"]])
    if node["type"] == "object":
        schema |= _object(node, defs)
    elif node["type"] == "array":
        schema |= _array(name, node, defs)
    elif node["type"] == "string" and "enum" not in node and "format" not in node:
        schema["maxLength"] = node.get("maxLength", _LONG_STRINGS.get(name, MAX_STRING))
    if node.get("default") is not None:
        schema["default"] = _default(node["default"], schema)
    return schema


def _without_null(node: Schema) -> Schema:
    """`X | None` is an optional X: the API server prunes nulls before it validates."""
    options: list[Schema] = [
        option for option in node.get("anyOf", ()) if option.get("type") != "null"
    ]
    if len(options) != 1:
        return node
    return options[0] | {key: value for key, value in node.items() if key != "anyOf"}


def _default(default: Any, schema: Schema) -> Any:
    """An object's default contains those of its fields: the API server checks rules on it."""
    if schema["type"] != "object":
        return default
    fields = schema.get("properties", {}).items()
    return {name: field["default"] for name, field in fields if "default" in field}


def _object(node: Schema, defs: dict[str, Schema]) -> Schema:
    if "properties" in node:
        properties = {key: _convert(key, value, defs) for key, value in node["properties"].items()}
        required = {"required": node["required"]} if node.get("required") else {}
        return {"properties": properties, **required}
    if node.get("additionalProperties") is True:
        return {"x-kubernetes-preserve-unknown-fields": True}
    if "additionalProperties" in node:
        pattern, values = "", node["additionalProperties"]
    else:
        [(pattern, values)] = node["patternProperties"].items()
    schema: Schema = {
        "additionalProperties": _convert("", values, defs),
        "maxProperties": MAX_ITEMS,
    }
    if pattern:
        keys = {"rule": f"self.all(key, key.matches({_quoted(pattern)}))"}
        message = {"message": f"keys must be {MEANINGS[pattern]}"}
        schema["x-kubernetes-validations"] = [keys | message]
    return schema


def _quoted(text: str) -> str:
    """A string literal of CEL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _array(name: str, node: Schema, defs: dict[str, Schema]) -> Schema:
    most = node.get("maxItems", MAX_ITEMS)
    items = {"items": _convert("", node["items"], defs), "maxItems": most}
    if name in _LIST_MAPS:
        return items | {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [_LIST_MAPS[name]],
        }
    return items | {"x-kubernetes-list-type": "atomic"}


def _int_or_string(node: Schema) -> Schema:
    kinds = {option["type"]: option for option in node["anyOf"]}
    assert set(kinds) == {"integer", "string"}, f"no structural form for {node}"
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": kinds["string"]["pattern"],
        "maxLength": kinds["string"]["maxLength"],
        "x-kubernetes-int-or-string": True,
    }
