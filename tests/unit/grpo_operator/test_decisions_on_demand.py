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
)
from grpo_trainer.spec import (
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
    assert decide(seen, at(300)).actions == (DELETE,)


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


def test_preemption_is_a_new_attempt_but_no_failure():
    seen = observed(job(running(), queueName="gpus"), cluster=cluster(suspended=True))
    decision = decide(seen, NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.QUEUED)
    assert (decision.status.attempt, decision.status.restarts) == (2, 0)
    assert decision.status.evictions == 1


def test_producers_are_scaled_while_the_run_continues():
    seen = observed(job(running(), producers={"replicas": 5}), ray_jobs=(ray_job(),))
    decision = decide(seen, NOW)
    assert (decision.actions, decision.status.phase) == ((ScaleProducers(5),), Phase.RUNNING)
    assert decision.status.workers.producers_desired == 5


def test_a_queued_cluster_is_not_scaled():
    subject = job(running(), producers={"replicas": 5}, queueName="gpus")
    assert decide(observed(subject, ray_jobs=(ray_job(),)), NOW).actions == ()


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_a_finished_job_stays_finished(phase):
    state = status(phase, completion_time=at(-5), attempt=1)
    for world in (NOTHING, {"ray_jobs": (ray_job(),)}):
        decision = decide(observed(job(state, suspend=True), **world), NOW)
        assert decision.status == state
        assert CreateCluster() not in decision.actions


def test_a_finished_job_is_deleted_after_its_time_to_live():
    state = status(Phase.SUCCEEDED, completion_time=at(-50), attempt=1)
    early = decide(observed(job(state, ttlSecondsAfterFinished=60), **NOTHING), NOW)
    assert (early.actions, early.requeue_after) == ((), 10.0)
    late = decide(observed(job(state, ttlSecondsAfterFinished=50), **NOTHING), NOW)
    assert late.actions == (DeleteJob(),)
