"""Scores the completions of a prompt by all parts of the reward."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from ..errors import InvalidInputError, RunFailedError
from ..messages import Row, Score
from ..spec import GRPOJobSpec
from ..spec.reward import RewardPart, RewardSpec, resolve_reward
from .combine import combine
from .part_scorers import part_scorer
from .registry import reward_class
from .remote import RemoteReward
from .worker import Failure, FailureReason

_log = logging.getLogger(__name__)
MAX_UNSCORED_FIRST = 4
"""Groups without any score at the start of a run, after which the reward is considered broken."""
MAX_UNSCORED = 64
"""Groups without any score in a row, after some had one."""
MAX_OUTAGE_SECONDS = 600.0
"""Time without any score while a service is unavailable."""


class Scorer:
    """Scores groups of completions, each completion with a deadline for each part.

    At most `workers` processes score; parts in processes share them. A completion that a part
    cannot score has no reward; its `error` is the reason (`timeout`, `crash`, `exception`, or
    `none` where no part applies), with the name of the part if the reward has named parts. The
    rest of its group is scored.
    """

    def __init__(
        self,
        spec: RewardSpec,
        workers: int,
        field: str = "spec.reward",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`field` is the path of the reward in the manifest."""
        self._parts = resolve_reward(spec, field)
        self._field = field
        self._clock = clock
        self._named = bool(spec.parts)
        share = -(-workers // len(self._parts))
        self._scorers = [part_scorer(part, share) for part in self._parts]
        self._seen: set[tuple[str, str]] = set()
        self._any_scored = False
        self._unscored_groups = 0
        self._unscored_since = 0.0
        self._last_detail = ""

    async def start(self) -> None:
        """Start the workers; raises InvalidInputError if the reward cannot be loaded."""
        await asyncio.gather(*(scorer.start() for scorer in self._scorers))

    async def score(self, row: Row, texts: Sequence[str]) -> tuple[Score, ...]:
        """One score per completion, in order.

        Raises InvalidInputError if none of the completions of the first groups could be scored,
        and RunFailedError if none of many groups in a row could, or none while a service was
        unavailable for long.
        """
        by_part = await asyncio.gather(*(s.score(row, texts) for s in self._scorers))
        failed = [
            (part, result)
            for part, results in zip(self._parts, by_part, strict=True)
            for result in results
            if isinstance(result, Failure)
        ]
        for part, failure in failed:
            self._report(part, row, failure)
        scores = tuple(
            combine(self._parts, results, named=self._named)
            for results in zip(*by_part, strict=True)
        )
        if scores:
            self._count(scores, outage=any(_is_outage(*pair) for pair in failed))
        return scores

    async def close(self) -> None:
        """Kill the workers; calls of `score` that are still waiting raise RuntimeError."""
        await asyncio.gather(*(scorer.close() for scorer in self._scorers))

    def _count(self, scores: Sequence[Score], *, outage: bool) -> None:
        if any(score.reward is not None for score in scores):
            self._any_scored, self._unscored_groups = True, 0
            return
        now = self._clock()
        if self._unscored_groups == 0:
            self._unscored_since = now
        self._unscored_groups += 1
        reasons = ", ".join(sorted({str(score.error) for score in scores}))
        cause = self._last_detail or "see the log"
        text = f"no completion of {self._unscored_groups} groups could be scored ({reasons})"
        if outage:
            seconds = now - self._unscored_since
            if seconds >= MAX_OUTAGE_SECONDS:
                raise RunFailedError(f"{text} for {seconds:.0f} s: {cause}")
            return
        if not self._any_scored and self._unscored_groups >= MAX_UNSCORED_FIRST:
            raise InvalidInputError(f"{self._field}: {text}: {cause}")
        if self._unscored_groups >= MAX_UNSCORED:
            raise RunFailedError(f"{text}: {cause}")

    def _report(self, part: RewardPart, row: Row, failure: Failure) -> None:
        kind = f"{failure.reason} {failure.detail.partition(':')[0]}".strip()
        self._last_detail = failure.detail or kind
        where = f"{row.source}: part {part.name}" if self._named else row.source
        if (part.name, kind) not in self._seen:  # the rest are counted in the metrics
            self._seen.add((part.name, kind))
            _log.warning(
                "%s: a completion could not be scored: %s",
                *(where, f"{failure.detail or kind}\n{failure.trace}".rstrip()),
            )


class Scorers:
    """The scorer of the training, and that of the evaluations: the same unless they have a reward
    of their own."""

    def __init__(self, spec: GRPOJobSpec, workers: int) -> None:
        own = spec.evaluation.reward
        self.training = Scorer(spec.reward, workers)
        self.evaluation = self.training
        if own is not None:
            self.evaluation = Scorer(own, workers, "spec.evaluation.reward")

    async def start(self) -> None:
        """As `Scorer.start`."""
        await asyncio.gather(*(scorer.start() for scorer in self._each))

    async def close(self) -> None:
        """As `Scorer.close`."""
        await asyncio.gather(*(scorer.close() for scorer in self._each))

    @property
    def _each(self) -> set[Scorer]:
        return {self.training, self.evaluation}


def _is_outage(part: RewardPart, failure: Failure) -> bool:
    away = failure.reason in (FailureReason.UNAVAILABLE, FailureReason.TIMEOUT)
    return away and issubclass(reward_class(part.type), RemoteReward)
