"""The driver of the current attempt: what it reports, and how it ends."""

from datetime import datetime, timedelta

from grpo_trainer.spec import ExitCode, Phase

from ..model.conditions import Reason, attempt_started
from ..model.decision import Decision, State, Transition, false, true, unknown
from ..model.observed import Observed, RayJob, RayJobState, Role
from .lost_attempt import eviction, is_preempted, leaving, preempted, recorded_eviction
from .progress import code_confined, progress_fields
from .readiness import cluster_ready
from .retry import fail, next_attempt, recovered

POLL_SECONDS = 5.0
SILENCE = timedelta(seconds=60)
"""How long a head may not respond before Training is Unknown."""


def driver_finished(observed: Observed, now: datetime) -> Decision | None:
    """The driver succeeded, or found its input invalid."""
    run = observed.run
    if run is None or run.active:
        return None
    if run.state is RayJobState.SUCCEEDED:
        transition = Transition(
            observed,
            now,
            Phase.SUCCEEDED,
            Reason.SUCCEEDED,
            cluster_ready=false(Reason.SUCCEEDED),
            training=false(Reason.SUCCEEDED),
        )
        return transition.decision(requeue_after=0.0)
    if run.exit_code == ExitCode.BAD_INPUT:
        return fail(observed, now, Reason.BAD_INPUT, _ending(run))
    return None


def driver_failed(observed: Observed, now: datetime) -> Decision | None:
    """Any other end of the driver is retried on the same pods."""
    run = observed.run
    if run is None or run.active:
        return None
    if is_preempted(observed):
        return preempted(observed, now)
    evicted = eviction(observed)
    if evicted is not None:
        return next_attempt(observed, now, Reason.EVICTED, f"{evicted}; {_ending(run)}")
    gone = leaving(observed) or recorded_eviction(observed)
    if run.exit_code == ExitCode.STOPPED and gone is not None:
        return next_attempt(observed, now, Reason.DRAINED, f"{gone}; {_ending(run)}")
    return next_attempt(observed, now, Reason.DRIVER_FAILED, _ending(run))


def driver_active(observed: Observed, now: datetime) -> Decision | None:
    """Record what the driver reports. A head that does not respond changes nothing else."""
    run = observed.run
    blind = observed.ray_jobs is None and attempt_started(observed.job.status)
    if not blind and run is None:
        return None
    phase, reason = observed.job.status.phase, Reason.SUBMITTED
    if run is not None:
        phase = Phase.RUNNING if run.state is RayJobState.RUNNING else Phase.STARTING
    if phase is Phase.RUNNING:
        reason = Reason.RUNNING
    training = _training(observed, now, reason)
    transition = Transition(
        observed,
        now,
        phase,
        training.reason,
        training.message,
        cluster_ready=cluster_ready(observed, now),
        training=training,
        code_confined=code_confined(observed.progress),
        changes=_head_uid(observed) | progress_fields(observed.progress) | recovered(observed),
    )
    return transition.decision(requeue_after=POLL_SECONDS)


def _training(observed: Observed, now: datetime, reason: Reason) -> State:
    attempt = f"attempt {observed.attempt}"
    evicted = eviction(observed)
    if evicted is not None:
        # Recorded while the pod exists: without it the loss would count as a failure.
        return true(Reason.EVICTED, f"{attempt}: {evicted}")
    gone = leaving(observed)
    if gone is not None and _incomplete(observed):
        return true(Reason.DRAINING, f"{attempt}: {gone}; the driver writes a checkpoint")
    since = observed.silent_since
    if since is not None and now - since >= SILENCE:
        head = observed.head
        where = f" on node {head.node}" if head is not None and head.node else ""
        message = f"{attempt}: the head{where} does not respond; the run is left as it is"
        return unknown(Reason.HEAD_NOT_ANSWERING, message)
    return true(reason, attempt)


def _incomplete(observed: Observed) -> bool:
    """Whether the pods that leave have not been replaced."""
    spec = observed.job.spec
    assert spec is not None
    return observed.head is None or observed.ready(Role.CONSUMER) < spec.consumers.replicas


def _head_uid(observed: Observed) -> dict[str, object]:
    """The head of an attempt whose submission was not recorded."""
    status, head = observed.job.status, observed.head
    recorded = attempt_started(status) and status.head_pod_uid is not None
    if recorded or head is None or observed.run is None:
        return {}
    return {"head_pod_uid": head.uid}


def _ending(run: RayJob) -> str:
    """How the driver ended, with the end of its log."""
    how = f"exit code {run.exit_code}" if run.exit_code is not None else run.state.lower()
    return f"{how}: {run.message.strip()[-1000:]}" if run.message.strip() else how
