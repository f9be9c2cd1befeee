"""The base image: pulled, or where no registry can be reached a stand-in of the same shape.

The stand-in is Debian's Python instead of the one that docker.io builds. It takes over how this
machine reaches its package index (certificates, settings of pip), so it is for tests only.
"""

import os
import re
import shutil
import sys
from pathlib import Path

from containers import Tools
from recipes import BASE

_PULL_SECONDS = 300.0
_STORE_SECONDS = 120.0
_DEBOOTSTRAP_SECONDS = 600.0
_RELEASE = "bookworm"
_INCLUDED = "ca-certificates,netbase,tzdata,python3,python3-pip-whl"
_PATH = "PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
_WHEELS = "/usr/share/python-wheels"
_SETUP = f"""
set -e
update-ca-certificates
ln -s /usr/bin/python3 /usr/local/bin/python
ln -s /usr/bin/python3 /usr/local/bin/python3
rm -f /usr/lib/python3.11/EXTERNALLY-MANAGED
PYTHONPATH=$(echo {_WHEELS}/pip-*.whl) python3 -m pip install --quiet --no-index --no-cache-dir \\
    --find-links {_WHEELS} --root-user-action=ignore --ignore-installed pip
rm -rf {_WHEELS} /var/cache/apt/archives/*.deb /var/cache/apt/*.bin /var/lib/apt/lists/*
"""


def ensure(tools: Tools) -> None:
    """Has the base image in the store.

    Raises:
        RuntimeError: it can be neither pulled nor imitated.
    """
    if tools.run(
        "buildah", "images", "--quiet", "--filter", f"reference={BASE}", timeout=_STORE_SECONDS
    ):
        return
    code, output = tools.outcome(["buildah", "pull", "--quiet", BASE], timeout=_PULL_SECONDS)
    if code == 0:
        return
    reason = output.strip().splitlines()[-1]
    print(f"{BASE} cannot be pulled, so a stand-in is made: {reason}", file=sys.stderr)
    if os.geteuid() != 0:
        raise RuntimeError("a stand-in for the base image can be made by root only")
    _make(tools)


def _make(tools: Tools) -> None:
    container = tools.run("buildah", "from", "scratch", timeout=_STORE_SECONDS).strip()
    try:
        root = Path(tools.run("buildah", "mount", container, timeout=_STORE_SECONDS).strip())
        command = ["debootstrap", "--variant=minbase", f"--include={_INCLUDED}", _RELEASE]
        tools.run(*command, str(root), mirror(Path("/etc/apt")), timeout=_DEBOOTSTRAP_SECONDS)
        _take_over_settings(root)
        setup = ["env", "-i", _PATH, "chroot", str(root), "/bin/sh", "-c", _SETUP]
        tools.run(*setup, timeout=_DEBOOTSTRAP_SECONDS)
        settings = ["--cmd", "python3", "--env", "LANG=C.UTF-8", "--env", _PATH]
        tools.run("buildah", "config", *settings, container, timeout=_STORE_SECONDS)
        tools.run("buildah", "commit", "--quiet", container, BASE, timeout=_STORE_SECONDS)
    finally:
        tools.run("buildah", "rm", container, timeout=_STORE_SECONDS)


def mirror(apt: Path) -> str:
    """The first mirror in apt's sources.

    Raises:
        RuntimeError: they name none.
    """
    sources = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    for file in sources:
        if file.suffix not in (".list", ".sources") or not file.is_file():
            continue
        found = re.search(
            r"^(?:URIs:|deb(?:\s+\[[^]]*\])?)\s+(https?://\S+)", file.read_text(), re.MULTILINE
        )
        if found is not None:
            return found[1]
    raise RuntimeError(f"{apt}: no source is a mirror of Debian")


def _take_over_settings(root: Path) -> None:
    """What this machine needs to reach its package index."""
    certificates = root / "usr/local/share/ca-certificates"
    certificates.mkdir(parents=True, exist_ok=True)
    for file in Path("/usr/local/share/ca-certificates").glob("*.crt"):
        shutil.copy(file, certificates)
    if Path("/etc/pip.conf").exists():
        shutil.copy("/etc/pip.conf", root / "etc/pip.conf")
    # As in the original: apt keeps no cache in a layer.
    caches = ("pkgcache", "srcpkgcache")
    lines = "".join(f'Dir::Cache::{cache} "";\n' for cache in caches)
    (root / "etc/apt/apt.conf.d/docker-clean").write_text(lines)
    (root / "etc/uv").mkdir()
    (root / "etc/uv/uv.toml").write_text("native-tls = true\n")
