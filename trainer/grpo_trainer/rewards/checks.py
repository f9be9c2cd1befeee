"""Checks before any model loads: the reward works, and some completion to every row can be
right."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..errors import InvalidDataError
from ..messages import Row
from ..spec.training import RewardSpec, RewardType
from . import symbolic
from .answers import MAX_ANSWER_LENGTH, is_plain, is_usable
from .code import tests_fault
from .confined import landlock_version
from .pool import WorkerPool
from .scorer import reward_pool
from .worker import Failure, FailureReason

_log = logging.getLogger(__name__)
_CHUNK = 16
_MAX_WORKERS = 8
T = TypeVar("T")


def check_answers(rows: Iterable[Row], reward: RewardSpec) -> None:
    """Refuse rows that no completion can answer right, and a reward that cannot be loaded.

    Blocks, also where an event loop runs. Raises InvalidDataError with a fault for each such row,
    led by its `source`, and InvalidInputError for the reward itself.
    """
    match reward.type:
        case RewardType.THINK_ANSWER_TAGS | RewardType.BOXED:
            faults = _answer_faults(list(rows), reward.timeout_seconds)
        case RewardType.CODE:
            faults = [f"{row.source}: {fault}" for row in rows if (fault := _tests_fault(row))]
            if not landlock_version():
                _log.warning("this kernel has no Landlock: programs of completions may read files")
        case RewardType.CUSTOM:
            faults = []
    if faults:
        raise InvalidDataError(faults)
    if reward.type in (RewardType.CODE, RewardType.CUSTOM):
        _wait(_load(reward))


async def _load(reward: RewardSpec) -> None:
    async with reward_pool(reward, workers=1):
        pass


def _tests_fault(row: Row) -> str | None:
    return "has no test cases" if row.tests is None else tests_fault(row.tests)


def _answer_faults(rows: list[Row], timeout_seconds: float) -> list[str]:
    golds = {row.answer for row in rows if row.answer is not None}
    doubtful = sorted(gold for gold in golds if not is_plain(gold))
    unusable = _wait(_unusable(doubtful, timeout_seconds)) if doubtful else {}
    faults = []
    for row in rows:
        if row.answer is None:
            faults.append(f"{row.source}: has no answer")
        elif row.answer in unusable:
            faults.append(f"{row.source}: answer {row.answer[:200]!r} {unusable[row.answer]}")
    return faults


async def _unusable(golds: list[str], timeout_seconds: float) -> dict[str, str]:
    """The references that nothing equals, with the reason."""
    chunks = [golds[start : start + _CHUNK] for start in range(0, len(golds), _CHUNK)]
    workers = min(len(os.sched_getaffinity(0)), len(chunks), _MAX_WORKERS)
    pool: WorkerPool[str, None, bool] = WorkerPool(
        _usable_function, workers=workers, timeout_seconds=timeout_seconds
    )
    async with pool:
        results = await asyncio.gather(*(pool.map(None, chunk) for chunk in chunks))
    verdicts = zip(golds, (result for chunk in results for result in chunk), strict=True)
    return {gold: _reason(gold, verdict) for gold, verdict in verdicts if verdict is not True}


def _usable_function() -> Callable[[str, None], bool]:
    symbolic.warm_up()
    return lambda gold, _: is_usable(gold)


def _reason(gold: str, verdict: bool | Failure) -> str:
    if len(gold) > MAX_ANSWER_LENGTH:
        return f"is longer than {MAX_ANSWER_LENGTH} characters"
    if isinstance(verdict, Failure) and verdict.reason is FailureReason.TIMEOUT:
        return "takes too long to parse"
    return "cannot be parsed as a choice letter, words, a number or LaTeX mathematics"


def _wait(coroutine: Coroutine[None, None, T]) -> T:
    with ThreadPoolExecutor(1, thread_name_prefix="check-answers") as executor:
        return executor.submit(asyncio.run, coroutine).result()
