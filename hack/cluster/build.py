"""The test cluster's programs, built once for each set of pins and kept outside the checkout."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from groups import DEFAULT_GROUP, GROUPS, TOOLS, Group, Program

_SCRIPT = Path(__file__).resolve().parent / "cluster.py"
_ENVIRONMENT = {"CGO_ENABLED": "0"}
_FLAGS = ("-trimpath", "-buildvcs=false")
_NO_DEBUG = "-gcflags=all=-dwarf=false"
"""The linker strips debug information, so it need not be compiled: a tenth of the time. The
programs are the same, so it is no part of the key."""


def programs(group: str = DEFAULT_GROUP) -> Path:
    """The directory of a group's programs, named by the hash of all that decides their content.

    Raises:
        FileNotFoundError: they have not been built.
    """
    directory = _directory(group)
    if not directory.exists():
        raise FileNotFoundError(f"{directory} is missing: run `{_SCRIPT} build {group}` first")
    return directory


def build(group: str = DEFAULT_GROUP) -> Path:
    """Builds what `programs` names, unless it is there. Appears whole or not at all."""
    directory = _directory(group)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f"{group}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            unfinished = Path(tempfile.mkdtemp(prefix=f"unfinished-{group}-", dir=directory.parent))
            try:
                _build(GROUPS[group], unfinished)
                unfinished.rename(directory)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
        return directory


def _build(group: Group, out: Path) -> None:
    for program in group.programs:
        print(f"building {program.name}", flush=True)
        _go(
            program.tool,
            *("build", *_FLAGS, _NO_DEBUG, "-tags", program.tags),
            *("-ldflags", _linker_flags(program)),
            *("-o", str(out / program.name), program.package),
        )
        for link in program.links:
            (out / link).symlink_to(program.name)
    manifests = out / "manifests"
    manifests.mkdir()
    for released in group.released:
        root = _source(released.tool, released.module)
        for pattern in released.files:
            for file in sorted(root.glob(pattern)):
                (manifests / file.name).write_bytes(file.read_bytes())
    for kustomized in group.kustomized:
        directory = _source(kustomized.tool, kustomized.module) / kustomized.directory
        rendered = subprocess.check_output(["kubectl", "kustomize", str(directory)])
        (manifests / kustomized.name).write_bytes(rendered)


def _linker_flags(program: Program) -> str:
    values = {}
    if "{version}" in "".join(program.stamp):
        version = _go(program.tool, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")[1:]
        values = {"version": version, "minor": version.split(".")[1]}
    return " ".join(["-s -w", *(f"-X {variable.format(**values)}" for variable in program.stamp)])


def _source(tool: str, module: str) -> Path:
    """The root of a module's source."""
    _go(tool, "mod", "download", module)
    return Path(_go(tool, "list", "-m", "-f", "{{.Dir}}", module))


def _go(tool: str, *arguments: str) -> str:
    command = ["go", "-C", str(TOOLS / tool), *arguments]
    return subprocess.check_output(command, text=True, env=os.environ | _ENVIRONMENT).strip()


def cache() -> Path:
    """Where what clusters share is kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "grpo-operator" / "cluster"


def _directory(group: str) -> Path:
    """Keyed by the group's pins and by its row in the table."""
    digest = hashlib.sha256(f"{GROUPS[group]!r}\0{_FLAGS!r}{_ENVIRONMENT!r}\0".encode())
    for tool in GROUPS[group].tools:
        for file in sorted((TOOLS / tool).iterdir()):
            digest.update(f"{tool}/{file.name}\0".encode() + file.read_bytes() + b"\0")
    return cache() / f"{group}-{digest.hexdigest()[:16]}"
