"""Imports the function of a custom reward, and checks that it can be called."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import InvalidInputError
from ..spec.reward import RewardPart

UserFunction = Callable[[Any, dict[str, Any]], Any]
"""Of a completion, or of the completions of a group, and the row's columns."""
_FILE_MODULE = "grpo_custom_reward"
_SIGNATURE = "reward(completion: str, row: dict) -> float | dict"
_BATCH_SIGNATURE = "reward(completions: list[str], row: dict) -> list"


def load_function(part: RewardPart) -> UserFunction:
    """Import the module and return its function; raises InvalidInputError naming the field."""
    assert part.custom is not None, "a rule of the spec"
    field = f"{part.field}.custom.module"
    try:
        module = _load_module(part.custom.module)
    except (Exception, SystemExit) as error:
        reason = f"cannot be imported: {type(error).__name__}: {error}"
        frames = traceback.extract_tb(error.__traceback__)
        places = [f"line {f.lineno}" for f in frames if f.filename.endswith(part.custom.module)]
        where = f" ({places[-1]})" if places else ""
        raise InvalidInputError(
            f"{field}: Invalid value: {part.custom.module!r}: {reason}{where}"
        ) from error
    name = part.custom.function
    fault = f"{part.field}.custom.function: Invalid value: {name!r}"
    if not hasattr(module, name):
        raise InvalidInputError(f"{fault}: is not in {module.__file__}")
    function: UserFunction = getattr(module, name)
    if not callable(function):
        raise InvalidInputError(f"{fault}: must be callable, is {type(function).__name__!r}")
    _check_signature(function, fault, _BATCH_SIGNATURE if part.custom.batch else _SIGNATURE)
    return function


def _check_signature(function: UserFunction, fault: str, wanted: str) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions in C have none
        return
    try:
        signature.bind("completion", {})
    except TypeError as error:
        name = getattr(function, "__name__", "")
        raise InvalidInputError(
            f"{fault}: must be {wanted}, is {name}{signature} ({error})"
        ) from None
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInputError(f"{fault}: must be {wanted}, not a generator")


def _load_module(name: str) -> ModuleType:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = Path(name).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    spec = importlib.util.spec_from_file_location(_FILE_MODULE, path)
    assert spec is not None and spec.loader is not None, "a .py file always has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[_FILE_MODULE] = module  # where dataclasses and pickle find their module
    spec.loader.exec_module(module)
    return module
