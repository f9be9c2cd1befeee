"""Validation of a manifest: all faults at once, each with its field, value and valid values."""

import copy
import json
import re
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .faults import Fault, forbidden, invalid, required
from .job import GRPOJob
from .kubernetes import MEANINGS


class InvalidManifestError(ValueError):
    """A manifest with one or more faults."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = faults
        super().__init__("\n".join(str(fault) for fault in faults))


def parse_manifest(data: Any) -> GRPOJob:
    """Validate plain data (from YAML or JSON) as a GRPOJob.

    Raises InvalidManifestError with all faults: those of single fields and, with the faulty fields
    at their defaults, those across fields.
    """
    if not isinstance(data, dict):
        must = "must be a mapping with apiVersion, kind, metadata, spec"
        raise InvalidManifestError([invalid("manifest", data, must)])
    # The API server adds these; a user need not remove them.
    data = {key: value for key, value in copy.deepcopy(data).items() if key != "status"}
    if isinstance(data.get("metadata"), dict):
        known = ("name", "namespace", "labels", "annotations")
        data["metadata"] = {k: v for k, v in data["metadata"].items() if k in known}
    faults: list[Fault] = []
    for name in ("apiVersion", "kind", "metadata"):
        if name not in data:
            faults.append(required(name))
    if isinstance(data.get("metadata"), dict) and "name" not in data["metadata"]:
        faults.append(required("metadata.name"))
    while True:
        try:
            # As the API server reads it: camel case only, and "8" or 8.5 is no integer.
            job = GRPOJob.model_validate_json(
                json.dumps(data), strict=True, by_alias=True, by_name=False
            )
        except ValidationError as error:
            new = _faults_of(error, data)
            faults += [fault for fault in new if not _follows(fault, faults)]
            if not _prune(data, error):
                raise InvalidManifestError(_unique(faults)) from None
            assert new
        else:
            if faults:
                raise InvalidManifestError(_unique(faults))
            return job


def _follows(fault: Fault, others: list[Fault]) -> bool:
    """Whether it exists only because an invalid field was removed: a field that is now missing, or
    a rule across fields that reads it."""
    return any(other.path == fault.path for other in others) or any(
        other.path.startswith(path) or path.startswith(other.path)
        for path in fault.reads
        for other in others
    )


def _faults_of(error: ValidationError, data: Any) -> list[Fault]:
    faults: list[Fault] = []
    for item in error.errors(include_url=False):
        if item["type"] == "cross_field":
            faults += item["ctx"]["faults"]
            continue
        path = _path(item["loc"], data)
        if item["type"] == "extra_forbidden":
            faults.append(_unknown_field(path, item["loc"]))
        elif item["type"] == "missing":
            faults.append(required(path))
        else:
            faults.append(invalid(path, item["input"], _must(item)))
    return _joined(faults)


def _unknown_field(path: str, loc: tuple[int | str, ...]) -> Fault:
    known = _known_fields(loc)
    close = get_close_matches(str(loc[-1]), known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return forbidden(path, f"unknown field; {hint}Known fields: {', '.join(known)}")


def _must(item: ErrorDetails) -> str:
    """A message of pydantic's in the words of the API server."""
    match item["type"]:
        case "model_type" | "dict_type":
            return "must be a mapping"
        case "string_pattern_mismatch" if (pattern := item["ctx"]["pattern"]) in MEANINGS:
            return f"must be {MEANINGS[pattern]}; the pattern is '{pattern}'"
        case "enum" | "literal_error":
            values = re.findall(r"'([^']*)'", item["ctx"]["expected"])
            return (
                f"must be one of {', '.join(values)}" if len(values) > 1 else f"must be {values[0]}"
            )
    return re.sub(r"^\w+ should ", "must ", item["msg"])


def _joined(faults: list[Fault]) -> list[Fault]:
    """One fault for each field, though each type that its value may have produced one."""
    by_path: dict[str, Fault] = {}
    for fault in faults:
        known = by_path.get(fault.path)
        must = f"{known.must}, or {fault.must.removeprefix('must ')}" if known else fault.must
        by_path[fault.path] = replace(fault, must=must)
    return list(by_path.values())


def _known_fields(loc: tuple[int | str, ...]) -> list[str]:
    """Camel-case names of the fields beside the one at `loc`."""
    model: Any = GRPOJob
    for part in loc[:-1]:
        if isinstance(part, int):
            continue
        fields = {f.alias or name: f for name, f in model.model_fields.items()}
        if part not in fields:
            return []
        model = _record_in(fields[part].annotation)
        if model is None:
            return []
    return sorted(f.alias or name for name, f in model.model_fields.items())


def _record_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _record_in(inner)
        if found is not None:
            return found
    return None


def _prune(data: Any, error: ValidationError) -> bool:
    """Remove the invalid fields, so that the rest can be checked; False when none is left."""
    pruned = False
    for item in error.errors(include_url=False):
        if item["type"] == "cross_field" or not item["loc"]:
            continue
        node, depth = data, 0
        for part in item["loc"][:-1]:
            child = node.get(part) if isinstance(node, dict) else None
            if not isinstance(child, dict):
                break
            node, depth = child, depth + 1
        if isinstance(node, dict) and item["loc"][depth] in node:
            del node[item["loc"][depth]]
            pruned = True
    return pruned


def _path(loc: tuple[int | str, ...], data: Any) -> str:
    """The field's path in the manifest, without the alternatives that pydantic names."""
    text, node = "", data
    for position, part in enumerate(loc):
        known = (isinstance(node, dict) and part in node) or isinstance(node, list)
        if not known and not (isinstance(node, dict) and position == len(loc) - 1):
            break
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
        node = node[part] if known else None
    return text.removeprefix(".") or "manifest"


def _unique(faults: list[Fault]) -> list[Fault]:
    return list({str(fault): fault for fault in faults}.values())
