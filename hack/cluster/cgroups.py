"""The cgroups below which a node keeps its pods: the one thing of it that lies outside."""

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def create(name: str) -> None:
    """Makes the cgroup `name` in every hierarchy."""
    for hierarchy in _hierarchies():
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        if (hierarchy / "cpuset.cpus").exists() and not (hierarchy / "cgroup.controllers").exists():
            for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new one, which may hold nobody
                (group / file).write_text((hierarchy / file).read_text())


def remove(name: str) -> None:
    """Removes the cgroup `name` and all below it; no process may be left in there."""
    for hierarchy in {*_hierarchies(), _ROOT / "unified"}:
        group = hierarchy / name
        below = [directory for directory in group.rglob("*") if directory.is_dir()]
        for directory in sorted([*below, group], reverse=True):
            if directory.exists():
                directory.rmdir()


def _hierarchies() -> list[Path]:
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    return [path for path in _ROOT.iterdir() if (path / "cgroup.clone_children").exists()]
