"""Fields that the command line sets, over those of a file: `--set spec.maxSteps=10`."""

import re
from argparse import ArgumentTypeError
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from ..errors import InvalidInputError
from .manifests import Loader

_ROOTS = ("spec", "metadata")
_DOT = re.compile(r"(?<!\\)\.")


@dataclass(frozen=True, slots=True)
class Setting:
    """One field and its value; None removes the field."""

    path: str
    """As in messages, `spec.` and below; a dot inside a key is `\\.`."""
    value: Any


def setting(text: str) -> Setting:
    """Parse PATH=VALUE, VALUE being YAML. Raises ArgumentTypeError."""
    path, sign, value = text.partition("=")
    if not sign or not path:
        raise ArgumentTypeError(f"Invalid value: {text!r}: must be PATH=VALUE")
    keys = split(path)
    if keys[0] not in _ROOTS or len(keys) == 1:
        hint = "" if keys[0] in _ROOTS else f"; did you mean spec.{path}?"
        raise ArgumentTypeError(
            f"Invalid value: {path!r}: must begin with spec. or metadata.{hint}"
        )
    if "" in keys:
        raise ArgumentTypeError(f"Invalid value: {path!r}: must not have an empty key")
    try:
        return Setting(path, yaml.load(value, Loader))
    except yaml.YAMLError as error:
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ArgumentTypeError(f"Invalid value: {value!r}: must be YAML: {reason}") from error


def split(path: str) -> list[str]:
    """The keys of a path."""
    return [key.replace("\\.", ".") for key in _DOT.split(path)]


def put(manifest: dict[str, Any], path: str, value: Any) -> None:
    """Set a field of a manifest as read; a section that is not a mapping is left alone, and is a
    fault of the manifest."""
    *parents, last = split(path)
    node: Any = manifest
    for key in parents:
        if not isinstance(node, dict):
            return
        node = node.setdefault(key, {})
    if isinstance(node, dict):
        node[last] = value


def apply(manifest: dict[str, Any], settings: Iterable[Setting]) -> None:
    """Set fields in order, so that the last of two settings wins.

    Raises InvalidInputError for a path through a list or a value without fields.
    """
    faults = []
    for each in settings:
        *parents, last = split(each.path)
        node: Any = manifest
        for depth, key in enumerate(parents):
            if node.get(key) is None:
                node[key] = {}
            node = node[key]
            if not isinstance(node, dict):
                section = ".".join(parents[: depth + 1])
                kind = "a list; set it as a whole" if isinstance(node, list) else "not a mapping"
                faults.append(f"--set {each.path}: Invalid value: {section} is {kind}")
                break
        else:
            if each.value is None:
                node.pop(last, None)
            else:
                node[last] = each.value
    if faults:
        raise InvalidInputError(faults)


def names(settings: Iterable[Setting]) -> Mapping[str, str]:
    """The option behind each field, for messages."""
    return {".".join(split(each.path)): f"--set {each.path}" for each in settings}
