"""The operator's whole behaviour as a table: the first row that applies decides.

`decide` is pure. Deciding again on what a decision led to must lead to the same place, whatever
was lost in between: an outcome is written to the status before its evidence is deleted, and
everything else can be observed again.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from grpo_trainer.spec import (
    ExitCode,
    Phase,
)

from ..model.conditions import Reason
from ..model.decision import (
    TERMINAL,
    CreateCluster,
    Decision,
    DeleteCluster,
    Draft,
    ScaleProducers,
    StopDriver,
    Submit,
    no,
    yes,
)
from ..model.observed import Observed, RayJob, RayJobState
from ..policies.deadlines import run_deadline, seconds_to_next, stall, startup_deadline
from ..policies.lost_attempt import attempt_lost
from ..policies.progress import progress_fields
from ..policies.readiness import cluster_created, cluster_ready, seconds_to_bind
from ..policies.retry import end, next_attempt, seconds_to_wait
from ..policies.suspend import resumption, suspension
from ..policies.ttl import clean_up

POLL_SECONDS = 5.0


def decide(seen: Observed, now: datetime) -> Decision:
    """What to do about a job, given all that is known of it. `now` has whole seconds."""
    for row in ROWS:
        decision = row(seen, now)
        if decision is not None:
            return _wake_for_deadlines(seen, _scale(seen, decision), now)
    raise AssertionError("the last row always applies")


def being_deleted(seen: Observed, now: datetime) -> Decision | None:
    """Kubernetes deletes the children; nothing is created or written any more."""
    return Decision(seen.job.status) if seen.job.deleting else None


def finished(seen: Observed, now: datetime) -> Decision | None:
    """Succeeded and Failed are final."""
    return clean_up(seen, now) if seen.job.status.phase in TERMINAL else None


def invalid(seen: Observed, now: datetime) -> Decision | None:
    """A spec that cannot be read is never run."""
    return end(seen, now, Reason.INVALID_SPEC, seen.job.faults) if seen.job.spec is None else None


def driver_finished(seen: Observed, now: datetime) -> Decision | None:
    """The driver says that it is done, or that no retry would help."""
    run = seen.run
    if run is None or run.active:
        return None
    if run.state is RayJobState.SUCCEEDED:
        draft = Draft(
            seen,
            now,
            Phase.SUCCEEDED,
            Reason.SUCCEEDED,
            cluster_ready=no(Reason.SUCCEEDED),
            training=no(Reason.SUCCEEDED),
        )
        return draft.decision(requeue_after=0.0)
    if run.exit_code == ExitCode.BAD_INPUT:
        return end(seen, now, Reason.BAD_INPUT, _last_words(run))
    return None


def driver_failed(seen: Observed, now: datetime) -> Decision | None:
    """Any other end of the driver: the pods are fine, so the next attempt uses them."""
    run = seen.run
    if run is None or run.active:
        return None
    return next_attempt(seen, now, Reason.DRIVER_FAILED, _last_words(run))


def old_pods_leaving(seen: Observed, now: datetime) -> Decision | None:
    """No pod of one cluster meets a pod of the next: both would write to the same volume."""
    gone = seen.cluster is None or seen.cluster.deleting
    if not gone or (seen.cluster is None and not seen.pods):
        return None
    ready = cluster_ready(seen, now)
    phase = seen.job.status.phase
    draft = Draft(seen, now, phase, ready.reason, ready.message, cluster_ready=ready)
    return startup_deadline(seen, now, draft.decision())


def backing_off(seen: Observed, now: datetime) -> Decision | None:
    """A failed job waits before its next attempt, longer each time."""
    wait = seconds_to_wait(seen, now)
    if wait <= 0:
        return None
    return Draft(seen, now, Phase.RETRYING, Reason.BACKING_OFF).decision(requeue_after=wait)


def no_cluster(seen: Observed, now: datetime) -> Decision | None:
    """Create everything. What the API server refuses is shown and tried again."""
    if seen.cluster is not None:
        return None
    spec = seen.job.spec
    assert spec is not None
    refused = cluster_ready(seen, now) if seen.problem else None
    draft = Draft(
        seen,
        now,
        Phase.QUEUED if spec.queue_name else Phase.STARTING,
        refused.reason if refused else Reason.CREATING,
        refused.message if refused else "",
        cluster_ready=refused or cluster_created(seen),
        training=no(Reason.CREATING),
        changes={"attempt": seen.attempt},
    )
    return startup_deadline(seen, now, draft.decision(CreateCluster()))


def queued(seen: Observed, now: datetime) -> Decision | None:
    """Kueue holds the pods back."""
    if seen.cluster is None or not seen.cluster.suspended:
        return None
    ready = cluster_ready(seen, now)
    draft = Draft(seen, now, Phase.QUEUED, ready.reason, ready.message, cluster_ready=ready)
    return draft.decision()


def driver_active(seen: Observed, now: datetime) -> Decision | None:
    """The driver runs: copy what it says. A silent head changes nothing by itself."""
    status = seen.job.status
    run = seen.run
    silent = seen.ray_jobs is None and _training(seen)
    if not silent and run is None:
        return None
    phase, reason = status.phase, Reason.SUBMITTED
    if run is not None:
        phase = Phase.RUNNING if run.state is RayJobState.RUNNING else Phase.STARTING
    if phase is Phase.RUNNING:
        reason = Reason.RUNNING
    draft = Draft(
        seen,
        now,
        phase,
        reason,
        f"attempt {seen.attempt}",
        cluster_ready=cluster_ready(seen, now),
        training=yes(reason, f"attempt {seen.attempt}"),
        stalled=no(Reason.ADVANCING) if phase is Phase.RUNNING else None,
        changes=progress_fields(seen.progress),
    )
    return draft.decision(requeue_after=POLL_SECONDS)


def pods_not_ready(seen: Observed, now: datetime) -> Decision | None:
    """Say which pod is missing and why, until the deadline."""
    ready = cluster_ready(seen, now)
    if ready.value == "True":
        return None
    wait = seconds_to_bind(seen, now)
    draft = Draft(seen, now, Phase.STARTING, ready.reason, ready.message, cluster_ready=ready)
    return startup_deadline(seen, now, draft.decision(requeue_after=wait))


def ready_to_submit(seen: Observed, now: datetime) -> Decision | None:
    """Start the driver, once no earlier one is left."""
    attempt = seen.attempt
    draft = Draft(seen, now, Phase.STARTING, Reason.SUBMITTED, f"attempt {attempt}")
    if seen.ray_jobs is None:
        ready = no(Reason.HEAD_NOT_ANSWERING, "Ray's dashboard on the head does not answer")
        draft = replace(draft, reason=ready.reason, message=ready.message, cluster_ready=ready)
        return startup_deadline(seen, now, draft.decision(requeue_after=POLL_SECONDS))
    draft = replace(draft, cluster_ready=cluster_ready(seen, now))
    others = [job.attempt for job in seen.ray_jobs if job.active and job.attempt != attempt]
    if others:
        draft = replace(draft, reason=Reason.STOPPING_OLD_ATTEMPT)
        return draft.decision(*map(StopDriver, others), requeue_after=POLL_SECONDS)
    draft = replace(draft, training=yes(Reason.SUBMITTED, f"attempt {attempt}"))
    return draft.decision(Submit(attempt), requeue_after=POLL_SECONDS)


ROWS: tuple[Callable[[Observed, datetime], Decision | None], ...] = (
    being_deleted,
    finished,
    invalid,
    driver_finished,
    run_deadline,
    suspension,
    resumption,
    driver_failed,
    attempt_lost,
    stall,
    old_pods_leaving,
    backing_off,
    no_cluster,
    queued,
    driver_active,
    pods_not_ready,
    ready_to_submit,
)


def _training(seen: Observed) -> bool:
    return any(c.type == "Training" and c.status == "True" for c in seen.job.status.conditions)


def _scale(seen: Observed, decision: Decision) -> Decision:
    """Also bring the number of producers in line, wherever a cluster is to stay.

    Kueue reserved quota for the pods that were asked for, so a queued cluster keeps its size.
    """
    spec, cluster = seen.job.spec, seen.cluster
    staying = decision.status.phase in (Phase.STARTING, Phase.RUNNING, Phase.RETRYING)
    if spec is None or cluster is None or cluster.deleting or spec.queue_name or not staying:
        return decision
    leaving = any(isinstance(action, DeleteCluster) for action in decision.actions)
    if leaving or cluster.producers == seen.producers:
        return decision
    scale = ScaleProducers(seen.producers)
    return replace(decision, actions=(*decision.actions, scale))


def _wake_for_deadlines(seen: Observed, decision: Decision, now: datetime) -> Decision:
    left = seconds_to_next(seen, decision.status, now)
    if left is None:
        return decision
    known = left if decision.requeue_after is None else decision.requeue_after
    return replace(decision, requeue_after=max(0.0, min(left, known)))


def _last_words(run: RayJob) -> str:
    """The end of the driver's log, where its error stands."""
    how = f"exit code {run.exit_code}" if run.exit_code is not None else run.state.lower()
    return f"{how}: {run.message.strip()[-1000:]}" if run.message.strip() else how
