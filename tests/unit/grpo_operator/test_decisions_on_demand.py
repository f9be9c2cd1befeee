"""The rows of the operator's table for requests of users and of Kueue.

Aspects: suspension, queueing, scaling, cleaning up.
"""

from dataclasses import replace

import pytest

from grpo_operator.controller.decide import decide
from grpo_operator.model.decision import (
    CreateCluster,
    DeleteCluster,
    DeleteJob,
    Drain,
    ScaleProducers,
    StopDriver,
)
from grpo_operator.model.observed import Role
from grpo_trainer.spec import (
    CheckpointStatus,
    Phase,
    Progress,
    ProgressStatus,
    RunState,
)
from support.observations import (
    NOTHING,
    NOW,
    at,
    cluster,
    job,
    observed,
    pods,
    ray_job,
    running,
    starting,
    state_of,
    status,
)

DELETE = DeleteCluster("cluster-uid")


def test_a_suspended_run_is_drained_first():
    seen = observed(job(running(), suspend=True), ray_jobs=(ray_job(),))
    recording = decide(seen, NOW)
    assert state_of(recording, "Suspended") == ("Unknown", "Draining")
    draining = decide(replace(seen, job=job(recording.status, suspend=True)), NOW)
    assert (draining.actions, draining.status.phase) == ((Drain(),), Phase.SUSPENDING)


@pytest.mark.parametrize("state", [running(), starting()])
def test_a_suspension_is_recorded_before_anything_is_done_for_it(state):
    seen = observed(job(state, suspend=True), ray_jobs=(ray_job(),))
    decision = decide(seen, NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.SUSPENDING)
    assert decision.requeue_after == 0


def test_a_driver_may_drain_until_its_time_has_passed():
    first = decide(observed(job(running(), suspend=True), ray_jobs=(ray_job(),)), NOW).status
    progress = Progress(state=RunState.DRAINING, attempt=1)
    seen = observed(job(first, suspend=True), ray_jobs=(ray_job(),), progress=progress)
    assert decide(seen, at(299)).actions == ()
    assert decide(seen, at(300)).actions == (StopDriver(1), DELETE)


def test_a_drained_run_deletes_its_pods_and_is_then_suspended():
    first = decide(observed(job(running(), suspend=True), ray_jobs=(ray_job(),)), NOW).status
    drained = observed(job(first, suspend=True), ray_jobs=(ray_job(1, "FAILED", 75),))
    freeing = decide(drained, NOW)
    assert freeing.actions == (DELETE,)
    assert freeing.status.phase is Phase.SUSPENDING
    assert freeing.status.restarts == 0
    resting = decide(observed(job(freeing.status, suspend=True), **NOTHING), NOW)
    assert (resting.actions, resting.status.phase) == ((), Phase.SUSPENDED)


@pytest.mark.parametrize(("code", "lost"), [(75, False), (1, True)])
def test_a_suspension_without_a_checkpoint_reports_the_lost_steps(code, lost):
    state = running(progress=ProgressStatus(step=5, total_steps=9))
    first = decide(observed(job(state, suspend=True), ray_jobs=(ray_job(),)), NOW).status
    ended = observed(job(first, suspend=True), ray_jobs=(ray_job(1, "FAILED", code),))
    releasing = decide(ended, NOW)
    suspended = decide(observed(job(releasing.status, suspend=True), **NOTHING), NOW)
    text = "no checkpoint was written: 5 steps since the newest checkpoint are lost"
    assert suspended.status.phase is Phase.SUSPENDED
    assert suspended.message == (text if lost else "")
    messages = {c.type: c.message for c in suspended.status.conditions}
    assert messages["Suspended"] == suspended.message


def test_a_suspension_that_is_revoked_is_completed_and_then_resumed():
    first = decide(observed(job(running(), suspend=True), ray_jobs=(ray_job(),)), NOW).status
    drained = decide(observed(job(first), ray_jobs=(ray_job(1, "FAILED", 75),)), NOW)
    assert drained.actions == (DELETE,)
    resting = decide(observed(job(drained.status), **NOTHING), NOW)
    assert (resting.status.phase, resting.requeue_after) == (Phase.SUSPENDED, 0.0)
    resumed = decide(observed(job(resting.status), **NOTHING), NOW)
    assert (resumed.status.phase, resumed.status.attempt) == (Phase.PENDING, 2)
    assert decide(observed(job(resumed.status), **NOTHING), NOW).actions == (CreateCluster(),)


def test_a_job_that_has_not_started_training_is_suspended_at_once():
    first = decide(observed(job(starting(), suspend=True), ray_jobs=()), NOW).status
    decision = decide(observed(job(first, suspend=True), ray_jobs=()), NOW)
    assert decision.actions == (DELETE,)


def test_a_run_that_finishes_while_it_drains_has_succeeded():
    first = decide(observed(job(running(), suspend=True), ray_jobs=(ray_job(),)), NOW).status
    done = observed(job(first, suspend=True), ray_jobs=(ray_job(1, "SUCCEEDED", 0),))
    assert decide(done, NOW).status.phase is Phase.SUCCEEDED


def test_a_job_in_a_queue_waits_without_a_deadline():
    subject = job(starting(since=-9999), queueName="gpus")
    decision = decide(observed(subject, cluster=cluster(suspended=True), pods=()), NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.QUEUED)
    assert decision.requeue_after is None


def test_the_time_of_a_drain_is_that_of_the_spec():
    fields = {"suspend": True, "checkpoint": {"drainSeconds": 60}}
    first = decide(observed(job(running(), **fields), ray_jobs=(ray_job(),)), NOW).status
    seen = observed(job(first, **fields), ray_jobs=(ray_job(),))
    assert decide(seen, at(59)).actions == (Drain(),)
    assert decide(seen, at(60)).actions == (StopDriver(1), DELETE)


def preempted(state=None, **world):
    """A job of a queue whose RayCluster Kueue has suspended."""
    subject = job(state or running(), queueName="gpus")
    return observed(subject, cluster=cluster(suspended=True), **world)


def test_preemption_is_a_new_attempt_but_no_failure():
    decision = decide(preempted(pods=()), NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.QUEUED)
    assert (decision.status.attempt, decision.status.restarts) == (2, 0)
    assert decision.status.evictions == 1


@pytest.mark.parametrize("leaving", [{}, {"deletion_deadline": at(100)}])
def test_a_preempted_driver_may_write_its_checkpoint_while_its_pod_remains(leaving):
    state = running(progress=ProgressStatus(step=5, total_steps=9))
    checkpoint = CheckpointStatus(step=6, path="checkpoints/step-6", time=NOW)
    progress = Progress(
        state=RunState.DRAINING, progress=ProgressStatus(step=6), checkpoint=checkpoint
    )
    head = (replace(pods()[0], **leaving),)
    waiting = decide(preempted(state, pods=head, ray_jobs=(ray_job(),), progress=progress), NOW)
    assert (waiting.actions, waiting.status.attempt) == ((), 1)
    assert state_of(waiting, "Training") == ("True", "Draining")
    assert waiting.status.checkpoint == checkpoint
    queued = decide(preempted(waiting.status, pods=()), NOW)
    assert (queued.status.phase, queued.status.attempt) == (Phase.QUEUED, 2)
    assert queued.message == "Kueue preempted the RayCluster"


def test_a_preemption_without_a_checkpoint_reports_the_lost_steps():
    state = running(progress=ProgressStatus(step=5, total_steps=9))
    decision = decide(preempted(state, pods=()), NOW)
    text = "no checkpoint was written: 5 steps since the newest checkpoint are lost"
    assert decision.message == f"Kueue preempted the RayCluster; {text}"


def test_a_driver_that_ends_while_it_is_preempted_waits_in_the_queue():
    ended = preempted(pods=pods(), ray_jobs=(ray_job(1, "FAILED", 75),))
    decision = decide(ended, NOW)
    assert (decision.status.phase, decision.reason) == (Phase.QUEUED, "Preempted")
    assert (decision.status.restarts, decision.status.evictions) == (0, 1)


@pytest.mark.parametrize("role", [Role.HEAD, Role.CONSUMER])
def test_a_driver_that_stops_as_a_pod_is_deleted_has_not_failed(role):
    leaving = tuple(replace(p, deletion_deadline=at(100)) if p.role is role else p for p in pods())
    draining = decide(observed(job(running()), pods=leaving, ray_jobs=(ray_job(),)), NOW)
    assert state_of(draining, "Training") == ("True", "Draining")
    ended = observed(job(draining.status), pods=pods(), ray_jobs=(ray_job(1, "FAILED", 75),))
    decision = decide(ended, NOW)
    assert (decision.status.phase, decision.reason) == (Phase.RETRYING, "Drained")
    assert (decision.status.restarts, decision.status.evictions) == (0, 1)


def test_a_producer_that_is_deleted_does_not_drain_the_run():
    leaving = tuple(
        replace(p, deletion_deadline=at(100)) if p.role is Role.PRODUCER else p for p in pods()
    )
    decision = decide(observed(job(running()), pods=leaving, ray_jobs=(ray_job(),)), NOW)
    assert state_of(decision, "Training") == ("True", "Running")


def test_producers_are_scaled_while_the_run_continues():
    seen = observed(job(running(), producers={"replicas": 5}), ray_jobs=(ray_job(),))
    decision = decide(seen, NOW)
    assert (decision.actions, decision.status.phase) == ((ScaleProducers(5),), Phase.RUNNING)
    assert decision.status.workers.producers_desired == 5


def test_a_queued_cluster_is_not_scaled():
    """Kueue itself may have set the label, so the spec need not name a queue."""
    subject = job(running(), producers={"replicas": 5})
    seen = observed(subject, cluster=cluster(queued=True), ray_jobs=(ray_job(),))
    decision = decide(seen, NOW)
    assert decision.actions == ()
    assert decision.status.workers.producers_desired == 2


def test_a_cluster_without_a_queues_label_is_scaled_whatever_the_spec_says():
    subject = job(running(), producers={"replicas": 5}, queueName="gpus")
    seen = observed(subject, cluster=cluster(queued=False), ray_jobs=(ray_job(),))
    assert decide(seen, NOW).actions == (ScaleProducers(5),)


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_a_finished_job_stays_finished(phase):
    state = status(phase, completion_time=at(-5), attempt=1)
    for world in (NOTHING, {"ray_jobs": (ray_job(),)}):
        decision = decide(observed(job(state, suspend=True), **world), NOW)
        assert decision.status == state
        assert CreateCluster() not in decision.actions


def test_pods_of_a_failed_job_are_kept_as_long_as_asked():
    fields = {"cleanupPolicy": {"keepFailedPodsSeconds": 60}, "ttlSecondsAfterFinished": 600}
    failed = status(Phase.FAILED, completion_time=at(-59), attempt=1)
    kept = decide(observed(job(failed, **fields)), NOW)
    assert (kept.actions, kept.requeue_after) == ((), 1.0)
    assert decide(observed(job(failed, **fields)), at(1)).actions == (DELETE,)
    succeeded = failed.model_copy(update={"phase": Phase.SUCCEEDED})
    assert decide(observed(job(succeeded, **fields)), NOW).actions == (DELETE,)


def test_a_driver_does_not_run_in_the_kept_pods_of_a_failed_job():
    subject = job(running(), activeDeadlineSeconds=600, checkpoint={"drainSeconds": 60})
    failed = decide(observed(subject, ray_jobs=(ray_job(),)), at(60))
    assert (failed.actions, failed.status.phase) == ((StopDriver(1),), Phase.FAILED)


def test_a_finished_job_is_deleted_after_its_time_to_live():
    state = status(Phase.SUCCEEDED, completion_time=at(-50), attempt=1)
    early = decide(observed(job(state, ttlSecondsAfterFinished=60), **NOTHING), NOW)
    assert (early.actions, early.requeue_after) == ((), 10.0)
    late = decide(observed(job(state, ttlSecondsAfterFinished=50), **NOTHING), NOW)
    assert late.actions == (DeleteJob(),)
