"""From parsed arguments to a job and its options: file, then flags, then `--set`."""

import copy
import re
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from ..spec import API_VERSION, KIND, MAX_NAME_LENGTH, GRPOJob, Metadata
from .flags import FLAGS, OPTION, SPEC, Flag
from .manifests import Document
from .overrides import Setting, apply, names, put

Given = list[tuple[Flag, Any]]
"""The flags on the command line with their values."""


def given_flags(arguments: Namespace) -> Given:
    """Flags of the table that the command line contains."""
    return [(flag, getattr(arguments, flag.key)) for flag in FLAGS if hasattr(arguments, flag.key)]


def job_of(base: Document | None, given: Given, settings: Sequence[Setting] = ()) -> GRPOJob:
    """The job of a manifest, flags and settings, each of which wins over those before it.

    Without a manifest the job has the name of its project. Raises InvalidInputError with every
    fault, and the flag or setting behind it.
    """
    fields = {flag.path: (flag, value) for flag, value in given if flag.path.startswith(SPEC)}
    document = copy.deepcopy(base) if base is not None else _empty(fields)
    for path, (flag, value) in fields.items():
        put(document.data, path, value)
        for further, implied in flag.also.items():
            put(document.data, further, implied)
    if isinstance(document.data, dict):
        apply(document.data, settings)
    flags = {path: "/".join(flag.names) for path, (flag, _) in fields.items()}
    return document.parse({**flags, **names(settings)})


def options_of(given: Given, project: str) -> dict[str, Any]:
    """Fields of RunOptions that flags set.

    Checkpoints and evaluations go to a folder with the project's name, as in the original, so that
    two projects may share the flag's value.
    """
    options = {f.path.removeprefix(OPTION): v for f, v in given if f.path.startswith(OPTION)}
    for folder in ("checkpoint_dir", "evaluation_dir"):
        if folder in options:
            options[folder] = options[folder] / project.replace(" ", "_")
    return options


def _empty(fields: dict[str, tuple[Flag, Any]]) -> Document:
    _, project = fields.get("spec.tracking.project", (None, ""))
    metadata = {"name": job_name(project) or Metadata().name}
    data = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": {}}
    return Document("command line", data)


def job_name(project: str) -> str:
    """A project's name as the name of an object; empty if it has no usable character."""
    name = re.sub(r"[^a-z0-9]+", "-", project.lower())
    return re.sub(r"^[^a-z]+", "", name)[:MAX_NAME_LENGTH].rstrip("-")
