"""The rows of the operator's table for failures.

Aspects: retries, losses, stalls, deadlines.
"""

from dataclasses import replace

import pytest

from grpo_operator.controller.decide import decide
from grpo_operator.model.decision import (
    CreateCluster,
    DeleteCluster,
    Drain,
    DumpStacks,
    StopDriver,
    Submit,
)
from grpo_operator.model.observed import Problem, Role
from grpo_operator.policies.retry import MAX_BACKOFF, backoff
from grpo_trainer.spec import CheckpointStatus, Phase, Progress, ProgressStatus, RunState
from support.observations import (
    NOTHING,
    NOW,
    at,
    cluster,
    condition,
    job,
    observed,
    pod,
    pods,
    ray_job,
    retrying,
    running,
    starting,
    state_of,
    status,
)

DELETE = DeleteCluster("cluster-uid")


def test_a_retry_waits_for_its_backoff_and_then_submits():
    wait = backoff(job().uid, 1)
    early = decide(observed(job(retrying(-wait + 3))), NOW)
    assert early.actions == ()
    assert early.requeue_after == pytest.approx(3)
    late = decide(observed(job(retrying(-wait))), NOW)
    assert late.actions == (Submit(2),)
    assert late.status.phase is Phase.STARTING


def test_the_backoff_doubles_up_to_its_limit_with_some_jitter():
    waits = [backoff("uid", n) for n in range(1, 9)]
    for n, wait in enumerate(waits):
        base = min(10.0 * 2**n, MAX_BACKOFF)
        assert base <= wait <= 1.2 * base
    assert len({backoff(str(n), 1) for n in range(50)}) > 10


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        ({"cluster": None, "pods": ()}, "ClusterLost"),
        ({"cluster": cluster(deleting=True)}, "ClusterLost"),
        ({"pods": pods()[1:]}, "HeadLost"),
        ({"pods": (pod(Role.HEAD, uid="another"), *pods()[1:])}, "HeadLost"),
        (
            {
                "pods": (
                    pod(Role.HEAD, ready=False, ready_changed=at(-61), stopped=True),
                    *pods()[1:],
                )
            },
            "HeadLost",
        ),
        ({"ray_jobs": ()}, "HeadLost"),
    ],
    ids=["cluster gone", "cluster leaving", "no head", "new head", "stopped head", "new container"],
)
def test_a_run_that_lost_its_head_starts_over_with_new_pods(world, reason):
    seen = observed(job(running()), **{"ray_jobs": None, **world})
    decision = decide(seen, NOW)
    assert decision.status.phase is Phase.RETRYING
    assert (decision.status.attempt, decision.status.restarts) == (2, 1)
    assert state_of(decision, "Training") == ("False", reason)
    live = seen.cluster is not None and not seen.cluster.deleting
    assert decision.actions == ((DELETE,) if live else ())


def test_the_end_of_a_head_is_named():
    heads = (pod(Role.HEAD, uid="another", last_termination="OOMKilled"), *pods()[1:])
    decision = decide(observed(job(running()), pods=heads, ray_jobs=None), NOW)
    assert "OOMKilled" in decision.message


def test_a_stopped_head_has_a_minute_to_start_again():
    heads = (pod(Role.HEAD, ready=False, ready_changed=at(-59), stopped=True), *pods()[1:])
    decision = decide(observed(job(running()), pods=heads, ray_jobs=None), NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.RUNNING)


def test_an_evicted_head_may_use_its_grace_period_for_a_checkpoint():
    leaving = (pod(Role.HEAD, deletion_deadline=at(60)), *pods()[1:])
    decision = decide(observed(job(running()), pods=leaving, ray_jobs=None), NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.RUNNING)
    late = decide(observed(job(running()), pods=leaving, ray_jobs=None), at(61))
    assert late.status.phase is Phase.RETRYING


def test_no_cluster_is_created_while_a_pod_of_the_old_one_is_left():
    seen = observed(job(retrying(-100)), cluster=None, pods=pods()[1:2], ray_jobs=None)
    decision = decide(seen, NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.RETRYING)
    assert state_of(decision, "ClusterReady") == ("False", "OldPodsLeaving")
    assert "consumers-0 on node-0" in decision.message
    gone = decide(observed(job(decision.status), **NOTHING), NOW)
    assert gone.actions == (CreateCluster(),)


def test_the_last_failure_is_recorded_before_the_cluster_is_deleted():
    state = running(restarts=3)
    decision = decide(observed(job(state), pods=pods()[1:], ray_jobs=None), NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.FAILED)


def test_a_run_without_a_step_is_dumped_stopped_and_started_over():
    seen = observed(
        job(running(), stallTimeoutSeconds=60), ray_jobs=(ray_job(),), step_since=at(-60)
    )
    decision = decide(seen, NOW)
    assert decision.actions == (DumpStacks(), StopDriver(1), DELETE)
    assert (decision.status.phase, decision.status.restarts) == (Phase.RETRYING, 1)
    assert state_of(decision, "Training") == ("False", "Stalled")
    assert state_of(decision, "Ready") == ("False", "Stalled")


@pytest.mark.parametrize(
    ("seconds", "stopped"), [(599, False), (600, True)], ids=["before", "after"]
)
def test_a_first_step_has_a_deadline_of_its_own(seconds, stopped):
    terms = {"stallTimeoutSeconds": 60, "firstStepTimeoutSeconds": 600}
    starting_up = Progress(attempt=1, state="starting")
    seen = observed(
        job(running(), **terms),
        ray_jobs=(ray_job(),),
        progress=starting_up,
        step_since=at(-seconds),
    )
    decision = decide(seen, NOW)
    assert (StopDriver(1) in decision.actions) is stopped
    assert ("firstStepTimeoutSeconds (600)" in decision.message) is stopped


def test_a_run_wakes_when_its_stall_timeout_would_pass():
    seen = observed(
        job(running(), stallTimeoutSeconds=60), ray_jobs=(ray_job(),), step_since=at(-58)
    )
    decision = decide(seen, NOW)
    assert (decision.actions, decision.requeue_after) == ((), 2.0)


def test_a_run_that_takes_too_long_fails():
    state = running(progress=ProgressStatus(step=5, total_steps=9))
    subject = job(state, activeDeadlineSeconds=600, checkpoint={"drainSeconds": 60})
    seen = observed(subject, ray_jobs=(ray_job(),), step_since=NOW)
    draining = decide(seen, NOW)
    assert (draining.actions, draining.status.phase) == ((Drain(),), Phase.RUNNING)
    assert state_of(draining, "Training") == ("True", "Draining")
    decision = decide(seen, at(60))
    assert (decision.status.phase, decision.reason) == (Phase.FAILED, "DeadlineExceeded")
    assert "5 steps since the newest checkpoint are lost" in decision.message


def test_a_run_that_writes_its_checkpoint_at_the_deadline_loses_nothing():
    state = running(progress=ProgressStatus(step=5, total_steps=9))
    ended = observed(job(state, activeDeadlineSeconds=600), ray_jobs=(ray_job(1, "FAILED", 75),))
    decision = decide(ended, NOW)
    assert (decision.status.phase, decision.reason) == (Phase.FAILED, "DeadlineExceeded")
    assert decision.message == "activeDeadlineSeconds (600) exceeded"


def test_pods_that_are_never_ready_fail_the_job_and_say_why():
    broken = tuple(
        replace(p, ready=False, problem=Problem("Unschedulable", "0/4 nodes are available"))
        for p in pods()
    )
    subject = job(starting(since=-30), startupDeadlineSeconds=30)
    decision = decide(observed(subject, pods=broken, ray_jobs=None), NOW)
    assert (decision.status.phase, decision.reason) == (Phase.FAILED, "StartupDeadlineExceeded")
    assert "Unschedulable: 0/4 nodes are available" in decision.message


def test_a_job_that_waits_for_pods_wakes_at_its_startup_deadline():
    seen = observed(job(starting(since=-10), startupDeadlineSeconds=30), pods=(), ray_jobs=None)
    assert decide(seen, NOW).requeue_after == 20.0


@pytest.mark.parametrize("restarts", [0, 1])
def test_pods_stuck_on_a_lost_node_are_waited_for_without_a_deadline(restarts):
    state = status(
        Phase.RETRYING,
        condition("ClusterReady", "False", at(-9999)),
        attempt=2,
        restarts=restarts,
        evictions=1 - restarts,
    )
    subject = job(state, startupDeadlineSeconds=30)
    decision = decide(observed(subject, cluster=None, ray_jobs=None), NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.RETRYING)
    assert "on node-0" in decision.message


def test_a_restart_waits_for_capacity_without_the_startup_deadline():
    state = retrying(-9999)
    broken = tuple(replace(p, ready=False) for p in pods())
    state = decide(observed(job(state), pods=broken, ray_jobs=None), at(-9000)).status
    assert state.phase is Phase.STARTING
    decision = decide(observed(job(state), pods=broken, ray_jobs=None), NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.STARTING)
    assert decision.requeue_after is None


def test_a_refusal_is_the_cause_named_at_the_startup_deadline():
    subject = job(startupDeadlineSeconds=30)
    refused = Problem("QuotaExceeded", "exceeded quota: claims")
    state = decide(observed(subject, problem=refused, **NOTHING), at(-30)).status
    subject = job(state, startupDeadlineSeconds=30)
    again = decide(observed(subject, **NOTHING), at(-10))
    assert state_of(again, "ClusterReady") == ("False", "QuotaExceeded")
    assert again.requeue_after == 10
    decision = decide(observed(subject, **NOTHING), NOW)
    assert (decision.status.phase, decision.reason) == (Phase.FAILED, "StartupDeadlineExceeded")
    assert "QuotaExceeded: exceeded quota: claims" in decision.message


def test_a_job_without_a_cluster_names_none():
    refused = Problem("QuotaExceeded", "exceeded quota: claims")
    decision = decide(observed(job(), problem=refused, **NOTHING), NOW)
    assert (decision.status.ray_cluster_name, decision.status.selector) == (None, None)
    created = decide(observed(job(), **NOTHING), NOW).status
    assert created.ray_cluster_name == "math-0a1b2c3d"
    assert "math-0a1b2c3d" in created.selector
    lost = decide(observed(job(running()), **NOTHING), NOW).status
    assert (lost.ray_cluster_name, lost.selector) == (None, None)


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.SUSPENDED, Phase.SUSPENDING])
def test_the_active_deadline_does_not_run_while_queued_or_suspended(phase):
    suspend = phase is not Phase.QUEUED
    state = status(phase, attempt=1, start_time=at(-9999))
    subject = job(state, suspend=suspend, activeDeadlineSeconds=60, queueName="gpus")
    world = NOTHING if suspend else {"cluster": cluster(suspended=True), "pods": ()}
    decision = decide(observed(subject, **world), NOW)
    if phase is Phase.QUEUED:
        decision = decide(observed(replace(subject, status=running(start_time=None))), NOW)
    assert decision.status.phase is not Phase.FAILED


def evicted_head(**fields):
    head = pod(Role.HEAD, disruption="DeletionByTaintManager", **fields)
    return (head, *pods()[1:])


def test_an_eviction_of_the_head_uses_up_no_retry():
    subject = job(running(), backoffLimit=0)
    leaving = evicted_head(deletion_deadline=at(60))
    during = decide(observed(subject, pods=leaving, ray_jobs=None), NOW)
    assert (during.actions, during.status.phase) == ((), Phase.RUNNING)
    assert state_of(during, "Training") == ("True", "Evicted")
    subject = job(during.status, backoffLimit=0)
    decision = decide(observed(subject, pods=pods()[1:], ray_jobs=None), NOW)
    assert decision.status.phase is Phase.RETRYING
    assert (decision.status.restarts, decision.status.evictions) == (0, 1)
    assert state_of(decision, "Training") == ("False", "Evicted")
    assert "DeletionByTaintManager" in decision.message


def test_a_driver_that_fails_while_a_worker_is_evicted_uses_up_no_retry():
    worker = pod(Role.CONSUMER, disruption="PreemptionByScheduler", deletion_deadline=at(30))
    world = {"pods": (pods()[0], worker, *pods()[2:]), "ray_jobs": (ray_job(1, "FAILED", 1),)}
    decision = decide(observed(job(running(), backoffLimit=0), **world), NOW)
    assert decision.status.phase is Phase.RETRYING
    assert (decision.status.restarts, decision.status.evictions) == (0, 1)


def with_progress(step, checkpoint):
    return Progress(
        state=RunState.RUNNING,
        attempt=2,
        progress=ProgressStatus(step=step, total_steps=100),
        checkpoint=CheckpointStatus(step=checkpoint, path=f"step-{checkpoint}", time=NOW),
    )


@pytest.mark.parametrize(
    ("step", "checkpoint", "restarts"), [(25, 20, 2), (31, 20, 2), (29, 25, 2), (30, 25, 0)]
)
def test_sustained_progress_forgets_earlier_failures(step, checkpoint, restarts):
    state = running(attempt=2, restarts=2, restart_step=20)
    world = {"ray_jobs": (ray_job(2),), "progress": with_progress(step, checkpoint)}
    assert decide(observed(job(state), **world), NOW).status.restarts == restarts


def test_a_failure_records_the_newest_checkpoint_and_the_lost_steps():
    state = running(
        progress=ProgressStatus(step=17, total_steps=100),
        checkpoint=CheckpointStatus(step=10, path="step-10", time=NOW),
    )
    decision = decide(observed(job(state), ray_jobs=(ray_job(1, "FAILED", 1),)), NOW)
    assert decision.status.restart_step == 10
    assert "7 steps since the newest checkpoint are lost" in decision.message


@pytest.mark.parametrize("code", [1, 2, 65, 75, 130, 137, 139, 143, None])
def test_every_exit_code_but_64_is_retried(code):
    decision = decide(observed(job(running()), ray_jobs=(ray_job(1, "FAILED", code),)), NOW)
    assert decision.status.phase is Phase.RETRYING
