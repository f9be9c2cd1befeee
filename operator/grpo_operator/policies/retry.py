"""Failures: how many are allowed, and how long to wait after each."""

from datetime import datetime
from hashlib import blake2b

from grpo_trainer.spec import ConditionStatus, ConditionType, Phase

from ..model.conditions import Reason, since
from ..model.decision import Action, Decision, Draft, State, no, unknown
from ..model.observed import Observed

FIRST_BACKOFF = 10.0
"""Seconds after the first failure; doubles with each."""
MAX_BACKOFF = 300.0
_JITTER = 0.2


def backoff(key: str, failures: int) -> float:
    """Seconds to wait after the n-th failure, stretched by up to a fifth that depends on the key.

    The same key and count give the same answer, so that a decision can be taken twice.
    """
    base: float = min(FIRST_BACKOFF * 2 ** min(failures - 1, 16), MAX_BACKOFF)
    digest = blake2b(f"{key}/{failures}".encode(), digest_size=4).digest()
    spread = int.from_bytes(digest, "big") / 2**32
    return round(base * (1 + _JITTER * spread), 1)


def next_attempt(
    seen: Observed,
    now: datetime,
    reason: Reason,
    message: str,
    *actions: Action,
    stalled: State | None = None,
) -> Decision:
    """The current attempt failed: the next one, or the end when no failure is left to spend.

    The end is recorded before the cluster is deleted: a deleted cluster tells nothing of its run.
    """
    assert seen.job.spec is not None
    status, limit = seen.job.status, seen.job.spec.backoff_limit
    text = f"attempt {seen.attempt}: {message}"
    if status.restarts >= limit:
        return end(
            seen, now, Reason.BACKOFF_LIMIT_EXCEEDED, f"{text} ({reason}; backoffLimit is {limit})"
        )
    draft = Draft(
        seen,
        now,
        Phase.RETRYING,
        reason,
        text,
        cluster_ready=unknown(reason),
        training=no(reason, text),
        stalled=stalled,
        changes={"attempt": seen.attempt + 1, "restarts": status.restarts + 1},
    )
    return draft.decision(*actions, requeue_after=0.0)


def end(seen: Observed, now: datetime, reason: Reason, message: str) -> Decision:
    """The job has failed for good."""
    ended = no(reason, message)
    draft = Draft(seen, now, Phase.FAILED, reason, message, cluster_ready=ended, training=ended)
    return draft.decision(requeue_after=0.0)


def seconds_to_wait(seen: Observed, now: datetime) -> float:
    """Seconds that the next attempt still has to wait; 0 when it may start."""
    status = seen.job.status
    failed = since(status, ConditionType.TRAINING, ConditionStatus.FALSE)
    if status.phase is not Phase.RETRYING or failed is None:
        return 0.0
    return max(0.0, backoff(seen.job.uid, status.restarts) - (now - failed).total_seconds())
