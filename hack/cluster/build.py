"""The test cluster's programs, built once for each set of pins and kept outside the checkout."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_BUILD = _HERE / "build.sh"


def programs() -> Path:
    """The directory of the built programs, named by the hash of all that decides their content.

    Raises:
        FileNotFoundError: they have not been built.
    """
    directory = _cache() / _pins()
    if not directory.exists():
        raise FileNotFoundError(f"{directory} is missing: run `{_HERE / 'cluster.py'} build` first")
    return directory


def build() -> Path:
    """Builds what `programs` names, unless it is there. Appears whole or not at all."""
    cache = _cache()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        directory = cache / _pins()
        if not directory.exists():
            unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=cache))
            try:
                subprocess.run([_BUILD, unfinished], check=True)
                unfinished.rename(directory)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
        return directory


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "grpo-operator" / "cluster"


def _pins() -> str:
    digest = hashlib.sha256()
    for file in [_BUILD, *sorted((_HERE / "tools").glob("*/*"))]:
        digest.update(f"{file.relative_to(_HERE)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
