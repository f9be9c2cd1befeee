"""The cache of built-in models: one process builds each model; only complete ones are visible."""

import logging
import os
import shutil
from pathlib import Path

from filelock import FileLock

from ..errors import InvalidInputError, invalid
from ..spec.reward import RewardType
from .names import SCHEME, is_builtin
from .recipe import CompletionFormat, OnProgress, Recipe, tiny_recipe

_log = logging.getLogger(__name__)

TINY = f"{SCHEME}tiny"
_LOCK_TIMEOUT_SECONDS = 1800.0
"""The warm-up takes a minute; a machine under ten times its load still finishes it."""


def default_cache() -> Path:
    """`$GRPO_CACHE/models`, else `grpo-operator/models` under the user's cache directory."""
    cache = os.environ.get("GRPO_CACHE")
    if cache:
        return Path(cache) / "models"
    user = os.environ.get("XDG_CACHE_HOME")
    return (Path(user) if user else Path.home() / ".cache") / "grpo-operator" / "models"


def resolve_model_path(
    path: str, reward: RewardType, cache: Path, on_progress: OnProgress | None = None
) -> str:
    """The directory of a built-in model, built if necessary; any other path or hub id unchanged.

    The completions of `builtin://tiny` have the form that the reward reads. Raises
    InvalidInputError for an unknown built-in name.
    """
    check_model_name(path)
    if not is_builtin(path):
        return path
    form = CompletionFormat.for_reward(reward)
    return str(ensure_tiny_model(cache, completion_format=form, on_progress=on_progress))


def check_model_name(path: str) -> None:
    """Raise InvalidInputError for an unknown built-in name."""
    if is_builtin(path) and path != TINY:
        raise InvalidInputError(invalid("spec.model.path", path, f"must be {TINY}"))


def ensure_tiny_model(
    cache: Path,
    *,
    completion_format: CompletionFormat,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Path:
    """Directory of `builtin://tiny`; see `ensure_model`."""
    return ensure_model(cache, tiny_recipe(completion_format, seed), on_progress)


def ensure_model(cache: Path, recipe: Recipe, on_progress: OnProgress | None = None) -> Path:
    """Directory of the model of this recipe, built in about a minute if it is not in the cache.

    Several processes may call at once: one builds the model, the others wait. `on_progress` is
    called with completed steps, total steps and accuracy; by default they are logged.

    Raises TimeoutError if another process holds the lock for half an hour, and RuntimeError if the
    warm-up does not reach the recipe's accuracy.
    """
    directory = cache / recipe.name
    if directory.is_dir():
        return directory
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f".{recipe.name}.lock", timeout=_LOCK_TIMEOUT_SECONDS):
        if not directory.is_dir():
            partial = cache / f".{recipe.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            _write(partial, recipe, on_progress or _log_progress)
            partial.rename(directory)
    return directory


def _write(directory: Path, recipe: Recipe, on_progress: OnProgress) -> None:
    from .warmup import write_model  # torch is imported only to build a model

    write_model(directory, recipe, on_progress)
    # safetensors sets mode 0600; a container may run as another user.
    directory.chmod(0o755)
    for file in directory.iterdir():
        file.chmod(0o644)


def _log_progress(step: int, total: int, accuracy: float) -> None:
    _log.info("warm-up of the tiny model: step %d of %d, accuracy %.3f", step, total, accuracy)
