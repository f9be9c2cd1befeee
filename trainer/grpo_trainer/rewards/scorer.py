"""Scores the completions of a prompt in worker processes."""

import logging
from collections.abc import Sequence
from functools import partial

from ..errors import InvalidInputError, RunFailedError
from ..messages import Row, Score
from ..spec.training import RewardSpec
from .pool import WorkerPool
from .registry import make_reward, reward_class
from .worker import Failure

_log = logging.getLogger(__name__)
MAX_UNSCORED_FIRST = 4
"""Groups without any score at the start of a run, after which the reward is considered broken."""
MAX_UNSCORED = 64
"""Groups without any score in a row, after some had one."""


def reward_pool(spec: RewardSpec, workers: int) -> WorkerPool[str, Row, Score]:
    """Workers that score completions with this reward."""
    return WorkerPool(
        partial(make_reward, spec),
        workers=workers,
        timeout_seconds=spec.timeout_seconds,
        memory_bytes=reward_class(spec.type).memory_bytes,
    )


class Scorer:
    """Scores groups of completions, at most `workers` groups at a time, each completion with a
    deadline.

    A completion that hangs, kills its worker or raises has no reward; its `error` is the reason
    (`timeout`, `crash`, `exception`, or `none` where a custom reward is None). The rest of its
    group is scored.
    """

    def __init__(self, spec: RewardSpec, workers: int) -> None:
        self._pool = reward_pool(spec, workers)
        self._seen: set[str] = set()
        self._any_scored = False
        self._unscored_groups = 0
        self._last_detail = ""

    async def start(self) -> None:
        """Start the workers; raises InvalidInputError if the reward cannot be loaded."""
        await self._pool.start()

    async def score(self, row: Row, texts: Sequence[str]) -> tuple[Score, ...]:
        """One score per completion, in order.

        Raises InvalidInputError if none of the completions of the first groups could be scored,
        and RunFailedError if none of many groups in a row could.
        """
        results = await self._pool.map(row, list(texts))
        scores = tuple(
            self._unscored(row, result) if isinstance(result, Failure) else result
            for result in results
        )
        if scores:
            self._count(scores)
        return scores

    async def close(self) -> None:
        """Kill the workers; calls of `score` that are still waiting raise RuntimeError."""
        await self._pool.close()

    def _count(self, scores: Sequence[Score]) -> None:
        if any(score.reward is not None for score in scores):
            self._any_scored, self._unscored_groups = True, 0
            return
        self._unscored_groups += 1
        reasons = ", ".join(sorted({str(score.error) for score in scores}))
        text = f"no completion of {self._unscored_groups} groups could be scored ({reasons})"
        if not self._any_scored and self._unscored_groups >= MAX_UNSCORED_FIRST:
            raise InvalidInputError(f"spec.reward: {text}: {self._last_detail or 'see the log'}")
        if self._unscored_groups >= MAX_UNSCORED:
            raise RunFailedError(text)

    def _unscored(self, row: Row, failure: Failure) -> Score:
        kind = f"{failure.reason} {failure.detail.partition(':')[0]}".strip()
        self._last_detail = failure.detail or kind
        if kind not in self._seen:  # the rest are counted in the metrics
            self._seen.add(kind)
            _log.warning(
                "%s: a completion could not be scored: %s",
                *(row.source, f"{failure.detail or kind}\n{failure.trace}".rstrip()),
            )
        return Score(reward=None, format_accuracy=0.0, accuracy=0.0, error=failure.reason.value)
