"""The chart, and the helm program that is built with the test cluster's."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "grpo-operator"
RELEASE, NAMESPACE = "release", "ops"
KUBERNETES = "1.34"
"""The version to render for; helm has no default of its own when built from its module."""
DEFINITION = "CustomResourceDefinition"

Object = dict[str, Any]


class HelmError(Exception):
    """What helm said when it refused."""


@functools.cache
def program() -> Path:
    """The helm program; built now if it has not been before."""
    script = ROOT / "hack" / "cluster" / "cluster.py"
    output = subprocess.check_output([sys.executable, script, "build", "helm"], text=True)
    return Path(output.splitlines()[-1]) / "helm"


def helm(*arguments: str | Path, kubeconfig: Path | None = None) -> str:
    """Run helm and return what it prints. Raises HelmError."""
    connection = () if kubeconfig is None else ("--kubeconfig", kubeconfig)
    done = subprocess.run(
        [program(), *arguments, *connection], capture_output=True, text=True, timeout=120
    )
    if done.returncode != 0:
        raise HelmError(done.stderr)
    return done.stdout


def settings(values: Object) -> list[str]:
    """Arguments that set the values, by path."""
    return [f"--set-json={path}={json.dumps(value)}" for path, value in values.items()]


def render(values: Object | None = None) -> list[Object]:
    """The objects of a release with these values."""
    return [found for found in yaml.safe_load_all(_template(*settings(values or {}))) if found]


@functools.cache
def _template(*arguments: str) -> str:
    command = ("template", RELEASE, CHART, "--namespace", NAMESPACE, "--kube-version", KUBERNETES)
    return helm(*command, *arguments)


def of_kind(objects: Sequence[Object], kind: str, suffix: str = "") -> Object:
    """The only object of a kind whose name ends so."""
    (found,) = (
        item
        for item in objects
        if item["kind"] == kind and item["metadata"]["name"].endswith(suffix)
    )
    return found


def committed(path: Path, text: str) -> str:
    """What a committed file says; it is first brought up to date with `UPDATE_SNAPSHOTS=1`."""
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text)
    return path.read_text()
