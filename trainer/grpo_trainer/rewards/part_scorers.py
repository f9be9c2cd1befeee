"""What scores the completions of a group by one part of the reward."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from ..messages import Row, Score
from ..spec.reward import RewardPart, RewardType
from .base import GroupFunction, LocalReward
from .pool import WorkerPool
from .registry import make_part, reward_class
from .remote import RemoteReward
from .worker import Failure, each

Results = list[Score | Failure]


class PartScorer(Protocol):
    """Scores groups of completions by one part; belongs to one event loop."""

    async def start(self) -> None:
        """Raises InvalidInputError if the reward cannot be loaded."""

    async def score(self, row: Row, texts: Sequence[str]) -> Results:
        """One result per completion, in order."""

    async def close(self) -> None:
        """Stop; calls of `score` that are still waiting raise RuntimeError."""


class WorkerScorer:
    """A part in worker processes, each completion with the deadline of the part."""

    def __init__(self, part: RewardPart, workers: int) -> None:
        reward = reward_class(part.type)
        assert issubclass(reward, LocalReward)
        self._batch = part.custom is not None and part.custom.batch
        factory = _batch_function if self._batch else _completion_function
        self._pool: WorkerPool[Any, Row, Any] = WorkerPool(
            partial(factory, part),
            workers=workers,
            timeout_seconds=part.timeout_seconds,
            memory_bytes=reward.memory_bytes,
        )

    async def start(self) -> None:
        await self._pool.start()

    async def score(self, row: Row, texts: Sequence[str]) -> Results:
        if not self._batch:
            return await self._pool.map(row, list(texts))
        if not texts:
            return []
        (result,) = await self._pool.map(row, [list(texts)])
        return [result] * len(texts) if isinstance(result, Failure) else result

    async def close(self) -> None:
        await self._pool.close()


class PlayedScorer:
    """The part of an environment, which scores each episode where it is played."""

    async def start(self) -> None:
        """Nothing to start."""

    async def score(self, row: Row, texts: Sequence[str]) -> Results:
        raise AssertionError("an episode has its score")

    async def close(self) -> None:
        """Nothing to stop."""


def part_scorer(part: RewardPart, workers: int) -> PartScorer:
    """The scorer of a part; `workers` processes, where it needs any."""
    if part.type is RewardType.ENVIRONMENT:
        return PlayedScorer()
    reward = reward_class(part.type)
    if issubclass(reward, RemoteReward):
        return reward(part)
    return WorkerScorer(part, workers)


def _completion_function(part: RewardPart) -> GroupFunction:
    return make_part(part).score_all


def _batch_function(part: RewardPart) -> Any:
    from .custom import Custom

    reward = make_part(part)
    assert isinstance(reward, Custom)
    return each(reward.score_group)
