"""Where built-in models are kept: each is made once, by one process, and seen only when whole."""

import logging
import os
import shutil
from pathlib import Path

from filelock import FileLock

from ..errors import InvalidInputError
from ..spec.training import RewardType
from .names import SCHEME, is_builtin
from .recipe import CompletionFormat, OnProgress, Recipe, tiny_recipe

_log = logging.getLogger(__name__)

TINY = f"{SCHEME}tiny"
_LOCK_TIMEOUT_SECONDS = 1800.0
"""The warm-up is a minute's work; a machine with ten times too much to do still makes it."""


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
    """The directory of a built-in model, made if need be; any other path or hub id as it is.

    `builtin://tiny` completions in the form that the reward reads: tags, else `\\boxed{}`. Raises
    InvalidInputError for an unknown built-in name.
    """
    if not is_builtin(path):
        return path
    if path != TINY:
        raise InvalidInputError(f"model path {path!r} is not built in; legal: {TINY}")
    tags = reward is RewardType.THINK_ANSWER_TAGS
    completion_format = CompletionFormat.THINK_ANSWER_TAGS if tags else CompletionFormat.BOXED
    return str(
        ensure_tiny_model(cache, completion_format=completion_format, on_progress=on_progress)
    )


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
    """Directory of the model of this recipe, made in about a minute when the cache lacks it.

    Many processes may call at once: one makes it, the others wait. `on_progress` hears of steps
    done, steps in all and accuracy; without it they are logged.

    Raises TimeoutError when another process holds the lock for half an hour, and RuntimeError when
    the warm-up misses the recipe's accuracy.
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
    from .warmup import write_model  # torch is loaded only where a model is made

    write_model(directory, recipe, on_progress)
    # safetensors writes for the owner alone; a container may run as another user.
    directory.chmod(0o755)
    for file in directory.iterdir():
        file.chmod(0o644)


def _log_progress(step: int, total: int, accuracy: float) -> None:
    _log.info("warm-up of the tiny model: step %d of %d, accuracy %.3f", step, total, accuracy)
