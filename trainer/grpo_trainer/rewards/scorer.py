"""Scores the completions of a prompt in worker processes."""

import logging
from collections.abc import Sequence
from functools import partial

from ..messages import Row, Score
from ..spec.training import RewardSpec
from .pool import WorkerPool, run_blocking
from .registry import make_reward, reward_class
from .worker import Failure

_log = logging.getLogger(__name__)


def reward_pool(spec: RewardSpec, workers: int) -> WorkerPool[str, Row, Score]:
    """Workers that score completions with this reward."""
    return WorkerPool(
        partial(make_reward, spec),
        workers=workers,
        timeout_seconds=spec.timeout_seconds,
        memory_bytes=reward_class(spec.type).memory_bytes,
    )


def check_loads(spec: RewardSpec) -> None:
    """Load the reward in a worker; blocks, raises the InvalidInputError of `Reward.load`."""
    run_blocking(_load(spec))


async def _load(spec: RewardSpec) -> None:
    async with reward_pool(spec, workers=1):
        pass


class Scorer:
    """Scores groups of completions, at most `workers` groups at a time, each completion with a
    deadline.

    A completion that hangs, kills its worker or raises has no reward; its `error` is the reason
    (`timeout`, `crash`, `exception`). The rest of its group is scored.
    """

    def __init__(self, spec: RewardSpec, workers: int) -> None:
        self._pool = reward_pool(spec, workers)
        self._seen: set[str] = set()

    async def start(self) -> None:
        """Start the workers; raises InvalidInputError if the reward cannot be loaded."""
        await self._pool.start()

    async def score(self, row: Row, texts: Sequence[str]) -> tuple[Score, ...]:
        """One score per completion, in order."""
        results = await self._pool.map(row, list(texts))
        return tuple(
            self._unscored(row, result) if isinstance(result, Failure) else result
            for result in results
        )

    async def close(self) -> None:
        """Kill the workers; calls of `score` that are still waiting raise RuntimeError."""
        await self._pool.close()

    def _unscored(self, row: Row, failure: Failure) -> Score:
        kind = f"{failure.reason} {failure.detail.partition(':')[0]}".strip()
        if kind not in self._seen:  # the rest are counted in the metrics
            self._seen.add(kind)
            _log.warning(
                "%s: a completion could not be scored: %s", row.source, failure.detail or kind
            )
        return Score(reward=None, format_accuracy=0.0, accuracy=0.0, error=failure.reason.value)
