"""The environment of a run on one machine: nothing inherited keeps its Ray from starting."""

import os
import secrets
import tempfile
from collections.abc import MutableMapping, Sequence
from pathlib import Path

from grpo_trainer.errors import InvalidInputError, RunFailedError, invalid

_KEPT = frozenset({"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"})
"""Variables of Ray that a caller may set, beside the lower-case ones, which tune it."""
_SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket on Linux."""
_SESSION = "/grpo-ray-12345678/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
MAX_TEMP_PATH = _SOCKET_PATH_BYTES - len(_SESSION)
"""Longest path of the directory for Ray's temporary files, in bytes."""


def settle_environment(*, own_ray: bool) -> None:
    """Set the variables that libraries read when they are imported, for all processes of a run.

    A caller's `RAY_ADDRESS` or `RAY_TMPDIR` is about another Ray, so a Ray of our own ignores it.
    """
    if own_ray:
        remove_foreign_ray_variables(os.environ)
        if not os.environ.get("RAY_AUTH_TOKEN"):
            # A secret of this run: without one Ray writes a lasting one to the home directory.
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(16)
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    # At nice 15, Ray's default, workers starve on a machine that does anything else.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Without this the tokenizer warns about every process that is started.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def remove_foreign_ray_variables(environment: MutableMapping[str, str]) -> None:
    """Remove the variables that tie a process to another Ray."""
    for name in list(environment):
        if name.startswith("RAY_") and name[4:5].isupper() and name not in _KEPT:
            del environment[name]


def ray_directory(requested: Path | None) -> Path:
    """Create a directory for Ray's temporary files whose sockets have legal paths.

    Raises:
        InvalidInputError: the requested directory has too long a path.
        RunFailedError: no directory for temporary files can be written to.
    """
    if requested is not None:
        if not _is_short(requested):
            must = f"must have at most {MAX_TEMP_PATH} bytes, as Ray creates sockets in it"
            raise InvalidInputError(invalid("--ray_dir", str(requested), must))
        candidates: Sequence[Path] = [requested]
    else:
        candidates = [Path(tempfile.gettempdir()), *map(Path, ("/tmp", "/var/tmp", "/dev/shm"))]
    for parent in candidates:
        if _is_short(parent) and os.access(parent, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix="grpo-ray-", dir=parent)).resolve()
    names = ", ".join(map(str, candidates))
    raise RunFailedError(f"no directory for temporary files can be written to: tried {names}")


def temp_variables(directory: Path) -> dict[str, str]:
    """The variables for actors whose inherited temporary directory has too long a path."""
    return {} if _is_short(Path(tempfile.gettempdir())) else {"TMPDIR": str(directory)}


def _is_short(parent: Path) -> bool:
    return len(os.fsencode(parent.resolve())) <= MAX_TEMP_PATH
