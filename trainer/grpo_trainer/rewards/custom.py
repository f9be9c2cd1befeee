"""The `custom` reward: a function of the user's own."""

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import InvalidInputError
from ..messages import Row, Score
from ..spec.training import RewardSpec

CustomFunction = Callable[[str, dict[str, Any]], float | dict[str, float]]
_FILE_MODULE = "grpo_custom_reward"
_FIELDS = {"reward", "accuracy", "format_accuracy"}


def score_custom(text: str, row: Row, *, function: CustomFunction) -> Score:
    """Call `function(completion, row)`, with the row's columns and its reference as `answer`.

    It returns the reward, or a dict of `reward`, `accuracy` (the reward cut to [0, 1] when absent)
    and `format_accuracy` (1 when absent). Raises TypeError or ValueError for anything else.
    """
    reference = {} if row.answer is None else {"answer": row.answer}
    result = function(text, {**row.columns, **reference})
    values = result if isinstance(result, dict) else {"reward": result}
    if "reward" not in values or not values.keys() <= _FIELDS:
        raise TypeError(f"a reward must have the key 'reward' of {sorted(_FIELDS)}, got {values}")
    reward = _finite("reward", values["reward"])
    return Score(
        reward=reward,
        accuracy=_finite("accuracy", values.get("accuracy", min(max(reward, 0.0), 1.0))),
        format_accuracy=_finite("format_accuracy", values.get("format_accuracy", 1.0)),
    )


def load_function(spec: RewardSpec) -> CustomFunction:
    """Import the module and look the function up; raises InvalidInputError naming what is amiss."""
    if spec.custom is None:
        raise InvalidInputError("reward.custom is missing: reward.type custom needs its module")
    where = f"reward.custom.module {spec.custom.module!r}"
    try:
        module = _load_module(spec.custom.module)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InvalidInputError(f"{where} cannot be imported: {reason}") from error
    name = spec.custom.function
    if not hasattr(module, name):
        raise InvalidInputError(f"reward.custom.function {name!r} is not in {module.__file__}")
    function: CustomFunction = getattr(module, name)
    if not callable(function):
        kind = type(function).__name__
        raise InvalidInputError(f"reward.custom.function {name!r} must be callable, is {kind!r}")
    return function


def _load_module(name: str) -> ModuleType:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = Path(name).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    spec = importlib.util.spec_from_file_location(_FILE_MODULE, path)
    assert spec is not None and spec.loader is not None, "a .py file always has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[_FILE_MODULE] = module  # dataclasses and pickle look their module up
    spec.loader.exec_module(module)
    return module


def _finite(name: str, value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number}")
    return number
