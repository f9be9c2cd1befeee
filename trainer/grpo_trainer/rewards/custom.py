"""The `custom` reward: a function of the user's own."""

import importlib
import importlib.util
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import InvalidInputError
from ..messages import Row, Score
from ..spec.training import RewardSpec
from .base import Reward
from .pool import run_blocking
from .trial import check_function

CustomFunction = Callable[[str, dict[str, Any]], float | dict[str, float]]
_FILE_MODULE = "grpo_custom_reward"
RETURNED_NONE = "none"
"""`Score.error` of a completion whose reward is None."""
_SIGNATURE = "reward(completion: str, row: dict) -> float | dict"
_FIELDS = {"reward", "accuracy", "format_accuracy"}


class Custom(Reward):
    """Calls `function(completion, row)` with the row's columns and its reference as `answer`.

    The function returns the reward, or a dict of `reward`, `accuracy` (the reward clipped to
    [0, 1] if absent) and `format_accuracy` (1 if absent). A reward of None leaves the completion
    unscored.
    """

    reads_row = True
    max_reward = 1.0
    memory_bytes = None
    function: CustomFunction

    def check(self, rows: Sequence[Row]) -> None:
        run_blocking(check_function(self.spec, rows))

    def load(self) -> None:
        self.function = load_function(self.spec)

    def score(self, text: str, row: Row) -> Score:
        """Raises TypeError or ValueError if the function returns anything else."""
        reference = {} if row.answer is None else {"answer": row.answer}
        result = self.function(text, {**row.columns, **reference})
        values = result if isinstance(result, dict) else {"reward": result}
        if "reward" not in values or not values.keys() <= _FIELDS:
            raise TypeError(
                f"the returned dict must have 'reward' and may have 'accuracy' and "
                f"'format_accuracy', got {values}"
            )
        if values["reward"] is None:
            return Score(None, format_accuracy=0.0, accuracy=0.0, error=RETURNED_NONE)
        reward = _finite("reward", values["reward"])
        return Score(
            reward=reward,
            accuracy=_finite("accuracy", values.get("accuracy", min(max(reward, 0.0), 1.0))),
            format_accuracy=_finite("format_accuracy", values.get("format_accuracy", 1.0)),
        )


def load_function(spec: RewardSpec) -> CustomFunction:
    """Import the module and return its function; raises InvalidInputError naming the field."""
    if spec.custom is None:
        raise InvalidInputError("spec.reward.custom: Required value: with type custom")
    field = "spec.reward.custom.module"
    try:
        module = _load_module(spec.custom.module)
    except (Exception, SystemExit) as error:
        reason = f"cannot be imported: {type(error).__name__}: {error}"
        frames = traceback.extract_tb(error.__traceback__)
        places = [f"line {f.lineno}" for f in frames if f.filename.endswith(spec.custom.module)]
        where = f" ({places[-1]})" if places else ""
        raise InvalidInputError(
            f"{field}: Invalid value: {spec.custom.module!r}: {reason}{where}"
        ) from error
    name = spec.custom.function
    fault = f"spec.reward.custom.function: Invalid value: {name!r}"
    if not hasattr(module, name):
        raise InvalidInputError(f"{fault}: is not in {module.__file__}")
    function: CustomFunction = getattr(module, name)
    if not callable(function):
        raise InvalidInputError(f"{fault}: must be callable, is {type(function).__name__!r}")
    _check_signature(function, fault)
    return function


def _check_signature(function: CustomFunction, fault: str) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions in C have none
        return
    needed = f"must be {_SIGNATURE}"
    try:
        signature.bind("completion", {})
    except TypeError as error:
        name = getattr(function, "__name__", "")
        raise InvalidInputError(f"{fault}: {needed}, is {name}{signature} ({error})") from None
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidInputError(f"{fault}: {needed}, neither asynchronous nor a generator")


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


def _finite(name: str, value: Any) -> float:
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise TypeError(f"{name} must be a number, got {value!r:.80} of type {kind}") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number}")
    return number


REWARD = Custom
