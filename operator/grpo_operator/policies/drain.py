"""Draining: the driver ends the step under way and writes a checkpoint before its pods go."""

from datetime import datetime

from grpo_trainer.spec import ExitCode, RunState

from ..model.conditions import attempt_started
from ..model.decision import Action, Drain
from ..model.observed import Observed
from .retry import lost_steps

POLL_SECONDS = 2.0


def drain(observed: Observed, began: datetime, now: datetime) -> tuple[Action, ...] | None:
    """The actions of a drain that began then; None when there is nothing left to wait for."""
    if not _alive(observed) or (now - began).total_seconds() >= _drain_seconds(observed):
        return None
    state = observed.progress.state if observed.progress is not None else None
    requested = state is not None and (state is RunState.DRAINING or state.is_end)
    return () if requested or observed.ray_jobs is None else (Drain(),)


def unsaved(observed: Observed) -> str:
    """The steps that are lost when the pods go; empty after a driver that stopped on request, which
    wrote a checkpoint."""
    run = observed.run
    if run is not None and run.exit_code == ExitCode.STOPPED:
        return ""
    lost = lost_steps(observed.job.status).removeprefix("; ")
    return f"no checkpoint was written: {lost}" if lost else ""


def _alive(observed: Observed) -> bool:
    """Whether a driver may still write its checkpoint."""
    head, run, cluster = observed.head, observed.run, observed.cluster
    leaving = cluster is None or cluster.deleting or cluster.suspended
    if not attempt_started(observed.job.status) or leaving or head is None or not head.ready:
        return False
    return observed.ray_jobs is None or (run is not None and run.active)


def _drain_seconds(observed: Observed) -> int:
    assert observed.job.spec is not None
    return observed.job.spec.checkpoint.drain_seconds
