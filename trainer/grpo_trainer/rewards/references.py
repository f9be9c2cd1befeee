"""Finds reference answers that no completion can match, before any model loads."""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence

from ..messages import Row
from ..row_faults import RowFault, shown
from . import symbolic
from .answers import MAX_ANSWER_LENGTH, is_plain, is_usable
from .pool import WorkerPool, run_blocking
from .worker import Failure, FailureReason, each

_CHUNK = 16
_MAX_WORKERS = 8


def reference_faults(
    rows: Sequence[Row], timeout_seconds: float, timeout_field: str
) -> list[RowFault]:
    """A fault for each row whose reference answer is missing, or not equal even to itself."""
    references = {row.answer for row in rows if row.answer is not None}
    doubtful = sorted(text for text in references if not is_plain(text))
    unusable = run_blocking(_unusable(doubtful, timeout_seconds)) if doubtful else {}
    faults = []
    for row in rows:
        if row.answer is None:
            faults.append(RowFault(row.source, "the reference answer"))
        elif row.answer in unusable:
            value = f"reference answer {shown(row.answer, width=200)}"
            requirement = unusable[row.answer].format(field=timeout_field)
            faults.append(RowFault(row.source, requirement, value))
    return faults


async def _unusable(references: list[str], timeout_seconds: float) -> dict[str, str]:
    """The references that nothing equals, with the requirement that each violates."""
    chunks = [references[start : start + _CHUNK] for start in range(0, len(references), _CHUNK)]
    workers = min(len(os.sched_getaffinity(0)), len(chunks), _MAX_WORKERS)
    pool: WorkerPool[str, None, bool] = WorkerPool(
        _usable_function, workers=workers, timeout_seconds=timeout_seconds
    )
    async with pool:
        results = await asyncio.gather(*(pool.map(None, chunk) for chunk in chunks))
    verdicts = zip(references, (result for chunk in results for result in chunk), strict=True)
    return {text: _requirement(text, verdict) for text, verdict in verdicts if verdict is not True}


def _usable_function() -> Callable[[Sequence[str], None], Iterator[bool | Failure]]:
    symbolic.warm_up()
    return each(lambda text, _: is_usable(text))


def _requirement(text: str, verdict: bool | Failure) -> str:
    if len(text) > MAX_ANSWER_LENGTH:
        return f"must be at most {MAX_ANSWER_LENGTH} characters"
    if isinstance(verdict, Failure) and verdict.reason is FailureReason.TIMEOUT:
        return "must be parsed within {field}"
    return "must be a choice letter, words, a number or LaTeX mathematics"
