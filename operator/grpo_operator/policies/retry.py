"""Failures: how many are retried, and the delay after each."""

from datetime import datetime
from hashlib import blake2b

from grpo_trainer.spec import ConditionStatus, ConditionType, ExitCode, GRPOJobStatus, Phase

from ..model.conditions import EVICTIONS, Reason, since
from ..model.decision import Action, Decision, StopDriver, Transition, false, unknown
from ..model.observed import Observed

FIRST_BACKOFF = 10.0
"""Seconds after the first failure; doubles with each."""
MAX_BACKOFF = 300.0
SUSTAINED_STEPS = 10
"""Steps after a failure by which a job has recovered from it."""
_JITTER = 0.2


def backoff(key: str, failures: int) -> float:
    """Seconds to wait after the n-th failure, plus up to a fifth that depends on the key.

    The same key and count give the same result, so that a decision can be repeated.
    """
    base: float = min(FIRST_BACKOFF * 2 ** min(max(failures, 1) - 1, 16), MAX_BACKOFF)
    digest = blake2b(f"{key}/{failures}".encode(), digest_size=4).digest()
    spread = int.from_bytes(digest, "big") / 2**32
    return round(base * (1 + _JITTER * spread), 1)


def next_attempt(
    observed: Observed,
    now: datetime,
    reason: Reason,
    message: str,
    *actions: Action,
) -> Decision:
    """The current attempt ended: the next one, or Failed when `backoffLimit` is exceeded.

    An eviction is counted apart and may happen any number of times. Failed is recorded before the
    cluster is deleted: a deleted cluster shows nothing of its attempt.
    """
    assert observed.job.spec is not None
    status, limit = observed.job.status, observed.job.spec.backoff_limit
    lost = "" if _drained(observed) else lost_steps(status)
    text = f"attempt {observed.attempt}: {message}{lost}"
    evicted = reason in EVICTIONS
    if not evicted and status.restarts >= limit:
        exceeded = f"{text} ({reason}; backoffLimit is {limit})"
        stops = [action for action in actions if isinstance(action, StopDriver)]
        return fail(observed, now, Reason.BACKOFF_LIMIT_EXCEEDED, exceeded, *stops)
    counted: dict[str, object] = (
        {"evictions": status.evictions + 1}
        if evicted
        else {"restarts": status.restarts + 1, "restart_step": _kept_step(status)}
    )
    transition = Transition(
        observed,
        now,
        Phase.RETRYING,
        reason,
        text,
        cluster_ready=unknown(reason),
        training=false(reason, text),
        changes={"attempt": observed.attempt + 1, **counted},
    )
    return transition.decision(*actions, requeue_after=0.0)


def _drained(observed: Observed) -> bool:
    """Whether the driver stopped on request, with a checkpoint."""
    return observed.run is not None and observed.run.exit_code == ExitCode.STOPPED


def recovered(observed: Observed) -> dict[str, object]:
    """Resets `restarts` after sustained progress: SUSTAINED_STEPS steps and a newer checkpoint
    since the last failure."""
    status, progress = observed.job.status, observed.progress
    if status.restarts == 0 or progress is None or progress.checkpoint is None:
        return {}
    newer = progress.checkpoint.step > status.restart_step
    sustained = progress.progress.step >= status.restart_step + SUSTAINED_STEPS
    return {"restarts": 0} if newer and sustained else {}


def lost_steps(status: GRPOJobStatus) -> str:
    """The steps that no checkpoint holds, as the end of a message; empty when there are none."""
    lost = status.progress.step - _kept_step(status)
    if lost <= 0:
        return ""
    return f"; {lost} {'step' if lost == 1 else 'steps'} since the newest checkpoint are lost"


def _kept_step(status: GRPOJobStatus) -> int:
    return status.checkpoint.step if status.checkpoint is not None else 0


def fail(
    observed: Observed, now: datetime, reason: Reason, message: str, *actions: StopDriver
) -> Decision:
    """The job fails; Failed is final. Its pods may be kept, so a driver that runs is stopped."""
    ended = false(reason, message)
    transition = Transition(
        observed, now, Phase.FAILED, reason, message, cluster_ready=ended, training=ended
    )
    return transition.decision(*actions, requeue_after=0.0)


def seconds_to_wait(observed: Observed, now: datetime) -> float:
    """Seconds until the next attempt may start."""
    status = observed.job.status
    failed = since(status, ConditionType.TRAINING, ConditionStatus.FALSE)
    if status.phase is not Phase.RETRYING or failed is None:
        return 0.0
    return max(0.0, backoff(observed.job.uid, status.restarts) - (now - failed).total_seconds())
