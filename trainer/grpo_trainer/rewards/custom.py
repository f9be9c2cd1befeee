"""The `custom` reward: a function of the user's own."""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any

from ..messages import Row, Score
from .base import LocalReward
from .pool import run_blocking
from .trial import check_function
from .user_function import UserFunction, load_function
from .worker import Failure, FailureReason, each, failure_of

RETURNED_NONE = "none"
"""`Score.error` of a completion whose reward is None."""
_FIELDS = {"reward", "accuracy", "format_accuracy"}
_SHARE_OF_DEADLINE = 0.9  # one slow call must not end the process of the others


class Custom(LocalReward):
    """Calls `function(completion, row)` with the row's columns and its reference as `answer`.

    The function returns the reward, or a dict of `reward`, `accuracy` (the reward clipped to
    [0, 1] if absent) and `format_accuracy` (1 if absent). A reward of None leaves the completion
    unscored. An asynchronous function is called for all completions of a group at once. With
    `batch` it gets the list of completions of a group and returns a list.
    """

    reads_row = True
    memory_bytes = None
    function: UserFunction
    _runner: asyncio.Runner

    def check(self, rows: Sequence[Row]) -> None:
        run_blocking(check_function(self.part, rows))

    def load(self) -> None:
        self.function = load_function(self.part)
        self._runner = asyncio.Runner()  # one loop: clients of the user's may outlive a call

    def score(self, text: str, row: Row) -> Score:
        """Raises TypeError or ValueError if the function returns anything else."""
        return _score(self._call(text, row))

    def score_all(self, texts: Sequence[str], row: Row) -> Iterator[Score | Failure]:
        if inspect.iscoroutinefunction(self.function):
            return iter(self._runner.run(self._concurrently(texts, row)))
        return each(self.score)(texts, row)

    def score_group(self, texts: Sequence[str], row: Row) -> list[Score]:
        results = self._call(list(texts), row)
        if not isinstance(results, list | tuple) or len(results) != len(texts):
            count = len(results) if hasattr(results, "__len__") else type(results).__name__
            raise TypeError(f"must return a list of {len(texts)} results, got {count}")
        return [_score(result) for result in results]

    def _call(self, given: str | list[str], row: Row) -> Any:
        result = self.function(given, _columns(row))
        return self._runner.run(_awaited(result)) if inspect.isawaitable(result) else result

    async def _concurrently(self, texts: Sequence[str], row: Row) -> list[Score | Failure]:
        async def one(text: str) -> Score | Failure:
            try:
                async with asyncio.timeout(_SHARE_OF_DEADLINE * self.part.timeout_seconds) as limit:
                    return _score(await self.function(text, _columns(row)))
            except BaseException as error:
                if isinstance(error, TimeoutError) and limit.expired():
                    return Failure(FailureReason.TIMEOUT)
                return failure_of(error)

        return await asyncio.gather(*(one(text) for text in texts))


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


def _columns(row: Row) -> dict[str, Any]:
    reference = {} if row.answer is None else {"answer": row.answer}
    return {**row.columns, **reference}


def _score(result: Any) -> Score:
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
