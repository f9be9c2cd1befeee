"""Reading a manifest: all faults in one go, each naming field, value and what would be legal."""

import copy
import json
from typing import Any

from pydantic import BaseModel, ValidationError

from .job import GRPOJob
from .rules import Fault

_MAX_SHOWN = 120


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
        raise InvalidManifestError(
            [Fault("manifest", _shown(data), "a mapping with apiVersion, kind, metadata, spec")]
        )
    # What an API server adds is no concern of the user's.
    data = {key: value for key, value in copy.deepcopy(data).items() if key != "status"}
    if isinstance(data.get("metadata"), dict):
        known = ("name", "namespace", "labels", "annotations")
        data["metadata"] = {k: v for k, v in data["metadata"].items() if k in known}
    faults: list[Fault] = []
    for required in ("apiVersion", "kind", "metadata"):
        if required not in data:
            faults.append(Fault(required, None, "required in a manifest"))
    if isinstance(data.get("metadata"), dict) and "name" not in data["metadata"]:
        faults.append(Fault("metadata.name", None, "required in a manifest"))
    while True:
        try:
            # As the API server reads it: camel case only, and "8" or 8.5 is no integer.
            job = GRPOJob.model_validate_json(
                json.dumps(data), strict=True, by_alias=True, by_name=False
            )
        except ValidationError as error:
            faults += (new := _faults_of(error, data))
            if not _prune(data, error):
                raise InvalidManifestError(_unique(faults)) from None
            assert new
        else:
            if faults:
                raise InvalidManifestError(_unique(faults))
            return job


def _faults_of(error: ValidationError, data: Any) -> list[Fault]:
    faults: list[Fault] = []
    for item in error.errors(include_url=False):
        if item["type"] == "cross_field":
            faults += item["ctx"]["faults"]
            continue
        path = _path(item["loc"], data)
        if item["type"] == "extra_forbidden":
            known = ", ".join(_known_fields(item["loc"]))
            faults.append(Fault(path, _shown(item["input"]), f"unknown field; known here: {known}"))
        elif item["type"] == "missing":
            faults.append(Fault(path, None, "required"))
        elif item["type"] == "model_type":
            faults.append(Fault(path, _shown(item["input"]), "a mapping"))
        else:
            faults.append(Fault(path, _shown(item["input"]), item["msg"].removeprefix("Input ")))
    return _joined(faults)


def _joined(faults: list[Fault]) -> list[Fault]:
    """One fault for each field, though each kind of value it might have been gave one."""
    by_path: dict[str, Fault] = {}
    for fault in faults:
        known = by_path.get(fault.path)
        legal = f"{known.legal}, or {fault.legal}" if known else fault.legal
        by_path[fault.path] = Fault(fault.path, fault.value, legal)
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
    """Take the faulty fields out, so that the rest can be checked; False when none is left."""
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
    """The field's place as a user wrote it, without the alternatives that pydantic names."""
    text, node = "", data
    for position, part in enumerate(loc):
        known = (isinstance(node, dict) and part in node) or isinstance(node, list)
        if not known and not (isinstance(node, dict) and position == len(loc) - 1):
            break
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
        node = node[part] if known else None
    return text.removeprefix(".") or "manifest"


class _Cut(str):
    """A long value, shown in part."""

    def __repr__(self) -> str:
        return str(self)


def _shown(value: Any) -> Any:
    text = repr(value)
    return value if len(text) <= _MAX_SHOWN else _Cut(text[:_MAX_SHOWN] + "...")


def _unique(faults: list[Fault]) -> list[Fault]:
    return list({str(fault): fault for fault in faults}.values())
