"""Scores the completions of a prompt by all parts of the reward."""

import asyncio
import logging
from collections.abc import Sequence

from ..errors import InvalidInputError, RunFailedError
from ..messages import Row, Score
from ..spec.reward import RewardPart, RewardSpec, resolve_reward
from .combine import combine
from .part_scorers import part_scorer
from .worker import Failure

_log = logging.getLogger(__name__)
MAX_UNSCORED_FIRST = 4
"""Groups without any score at the start of a run, after which the reward is considered broken."""
MAX_UNSCORED = 64
"""Groups without any score in a row, after some had one."""


class Scorer:
    """Scores groups of completions, each completion with a deadline for each part.

    At most `workers` processes score; parts in processes share them. A completion that a part
    cannot score has no reward; its `error` is the reason (`timeout`, `crash`, `exception`, or
    `none` where no part applies), with the name of the part if the reward has named parts. The
    rest of its group is scored.
    """

    def __init__(self, spec: RewardSpec, workers: int) -> None:
        self._parts = resolve_reward(spec)
        self._named = bool(spec.parts)
        share = -(-workers // len(self._parts))
        self._scorers = [part_scorer(part, share) for part in self._parts]
        self._seen: set[tuple[str, str]] = set()
        self._any_scored = False
        self._unscored_groups = 0
        self._last_detail = ""

    async def start(self) -> None:
        """Start the workers; raises InvalidInputError if the reward cannot be loaded."""
        await asyncio.gather(*(scorer.start() for scorer in self._scorers))

    async def score(self, row: Row, texts: Sequence[str]) -> tuple[Score, ...]:
        """One score per completion, in order.

        Raises InvalidInputError if none of the completions of the first groups could be scored,
        and RunFailedError if none of many groups in a row could.
        """
        by_part = await asyncio.gather(*(s.score(row, texts) for s in self._scorers))
        for part, results in zip(self._parts, by_part, strict=True):
            for failure in results:
                if isinstance(failure, Failure):
                    self._report(part, row, failure)
        scores = tuple(
            combine(self._parts, results, named=self._named)
            for results in zip(*by_part, strict=True)
        )
        if scores:
            self._count(scores)
        return scores

    async def close(self) -> None:
        """Kill the workers; calls of `score` that are still waiting raise RuntimeError."""
        await asyncio.gather(*(scorer.close() for scorer in self._scorers))

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
