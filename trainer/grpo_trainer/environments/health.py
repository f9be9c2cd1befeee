"""Detects an environment that fails systematically; single failures are masked or repeated."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from grpo_trainer.errors import InvalidInputError, RunFailedError
from grpo_trainer.messages import Episode, Rollout, Score

from .protocol import Reason

_log = logging.getLogger(__name__)
MAX_UNSCORED_FIRST = 4
"""Groups without any score at the start of a run, or at any time of an unavailable environment,
which was waited for."""
MAX_UNSCORED = 64
"""Groups without any score in a row, after some had one."""
_MIN_SCORED = 2
"""Episodes that can be compared."""
_TEMPORARY = frozenset({Reason.UNAVAILABLE, Reason.TIMEOUT})


class Verdict(Enum):
    """What becomes of a group whose episodes were played."""

    USE = "use"
    REQUEUE = "requeue"
    """The environment was unavailable: that does not count against the prompt."""
    FAIL = "fail"
    """Too few episodes are scored; the prompt may be repeated, boundedly."""


@dataclass(frozen=True, slots=True)
class CheckedGroup:
    """A group of episodes, and what becomes of it."""

    verdict: Verdict
    rollout: Rollout
    """Without the episodes that did not begin."""
    errors: tuple[str, ...]
    """Reasons of the episodes that were not scored."""

    @property
    def scores(self) -> tuple[Score, ...]:
        """Of the episodes that began."""
        return tuple(c.episode.score for c in self.rollout.completions if c.episode is not None)


class EnvironmentHealth:
    """Counts consecutive groups of which no episode could be scored."""

    def __init__(self) -> None:
        self._any_scored = False
        self._unscored_groups = 0
        self._seen: set[str] = set()

    def check(self, rollout: Rollout) -> CheckedGroup:
        """Decide about a group.

        Raises InvalidInputError or RunFailedError when no episode of many groups was scored.
        """
        episodes = [c.episode for c in rollout.completions if c.episode is not None]
        assert len(episodes) == len(rollout.completions)
        failed = [episode for episode in episodes if episode.score.reward is None]
        scored = len(episodes) - len(failed)
        for episode in failed:
            self._report(episode)
        self._count(scored, failed)
        errors = tuple(str(episode.score.error) for episode in failed)
        if not failed or scored >= _MIN_SCORED:
            verdict = Verdict.USE
        elif set(errors) == {Reason.UNAVAILABLE}:
            verdict = Verdict.REQUEUE
        else:
            verdict = Verdict.FAIL
        begun = tuple(c for c in rollout.completions if len(c.token_ids) > 0)
        return CheckedGroup(verdict, replace(rollout, completions=begun), errors)

    def _report(self, episode: Episode) -> None:
        """Log the first failure of each kind; the rest are counted in the metrics."""
        kind = f"{episode.score.error} {episode.failure}"
        if kind not in self._seen and len(self._seen) < MAX_UNSCORED:
            self._seen.add(kind)
            _log.warning("an episode could not be scored: %s", kind)

    def _count(self, scored: int, failed: Sequence[Episode]) -> None:
        if scored > 0:
            self._any_scored, self._unscored_groups = True, 0
            return
        self._unscored_groups += 1
        reasons = {str(episode.score.error) for episode in failed}
        first = not self._any_scored or reasons == {Reason.UNAVAILABLE}
        if self._unscored_groups < (MAX_UNSCORED_FIRST if first else MAX_UNSCORED):
            return
        text = (
            f"spec.environment: no episode of {self._unscored_groups} groups could be scored "
            f"({', '.join(sorted(reasons))}): {failed[-1].failure}"
        )
        if self._any_scored or reasons & _TEMPORARY:
            raise RunFailedError(text)
        raise InvalidInputError(text)
