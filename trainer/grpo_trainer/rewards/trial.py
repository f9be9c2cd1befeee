"""Calls a custom reward on rows of the data set before anything else starts."""

import logging
import time
from collections.abc import Sequence

from ..errors import InvalidInputError
from ..messages import Row, Score
from ..spec.reward import RewardPart
from .part_scorers import WorkerScorer
from .worker import Failure, FailureReason

_log = logging.getLogger(__name__)
_MAX_ROWS = 4
_MAX_SECONDS = 10.0
"""After this no further row is tried: a reward may be a slow service."""
Results = list[Score | Failure]


async def check_function(part: RewardPart, rows: Sequence[Row]) -> None:
    """Score a few completions of a few rows, spread over the data set.

    Raises InvalidInputError if the function cannot be loaded, hangs or kills its process, if it
    raises for every completion of a row, or if it scores no completion at all; with the user's
    traceback where there is one. Fewer failures are logged.
    """
    results: Results = []
    scorer = WorkerScorer(part, workers=1)
    await scorer.start()
    try:
        began = time.monotonic()
        for row in _spread(rows):
            of_row: Results = []
            for text in completions(row):
                of_row += await scorer.score(row, [text])
                _refuse_lost_worker(part, row, of_row[-1])
            failures = [result for result in of_row if isinstance(result, Failure)]
            if len(failures) == len(of_row):
                raise _invalid(part, f"fails on {row.source}: {_explained(failures[0])}")
            results += of_row
            if time.monotonic() - began > _MAX_SECONDS:
                break
    finally:
        await scorer.close()
    scored = [r for r in results if isinstance(r, Score) and r.reward is not None]
    if results and not scored:
        nones = sum(isinstance(result, Score) for result in results)
        raise _invalid(
            part,
            f"returned None for {nones} of {len(results)} test completions and scored none: must "
            "return a number, 0.0 for a wrong answer; None leaves a completion unscored",
        )
    _warn(results, len(scored))


def completions(row: Row) -> list[str]:
    """Completions that a reward can be expected to score: the answer in the usual forms, and none.

    Without a reference answer, 42 takes its place.
    """
    answer = row.answer or "42"
    return [
        f"The answer is \\boxed{{{answer}}}.",
        f"<think>I work it out.</think><answer>{answer}</answer>",
        answer,
        "I do not know.",
    ]


def _spread(rows: Sequence[Row]) -> list[Row]:
    last = len(rows) - 1
    chosen = {round(i * last / (_MAX_ROWS - 1)) for i in range(_MAX_ROWS)} if rows else set()
    return [rows[i] for i in sorted(chosen)]


def _refuse_lost_worker(part: RewardPart, row: Row, result: Score | Failure) -> None:
    match result:
        case Failure(reason=FailureReason.TIMEOUT):
            limit = f"{part.timeout_seconds:g} s ({part.timeout_field})"
            raise _invalid(part, f"must score a completion within {limit}, hangs on {row.source}")
        case Failure(reason=FailureReason.CRASH):
            raise _invalid(part, f"ends its process on {row.source}")


def _invalid(part: RewardPart, reason: str) -> InvalidInputError:
    assert part.custom is not None, "the function was loaded"
    return InvalidInputError(
        f"{part.field}.custom.function: Invalid value: {part.custom.function!r}: {reason}"
    )


def _explained(failure: Failure) -> str:
    return f"{failure.detail}\n{failure.trace}" if failure.trace else failure.detail


def _warn(results: Results, scored: int) -> None:
    failures = [result for result in results if isinstance(result, Failure)]
    nones = len(results) - scored - len(failures)
    if nones:
        _log.warning(
            "the custom reward returned None for %d of %d test completions: they are unscored, "
            "not wrong; return 0.0 for a wrong answer",
            *(nones, len(results)),
        )
    if failures:
        _log.warning(
            "the custom reward failed on %d of %d test completions, first: %s",
            *(len(failures), len(results), _explained(failures[0])),
        )
