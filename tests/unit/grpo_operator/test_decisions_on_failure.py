"""The rows of the operator's table for what goes wrong.

Aspects: retries, losses, stalls, deadlines.
"""

from dataclasses import replace

import pytest

from grpo_operator.controller.decide import decide
from grpo_operator.model.decision import (
    CreateCluster,
    DeleteCluster,
    DumpStacks,
    StopDriver,
    Submit,
)
from grpo_operator.model.observed import Problem, Role
from grpo_operator.policies.retry import MAX_BACKOFF, backoff
from grpo_trainer.spec import (
    Phase,
)
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
        ({"pods": (pod(Role.HEAD, created=at(-30)), *pods()[1:])}, "HeadLost"),
        (
            {"pods": (pod(Role.HEAD, ready=False, ready_changed=at(-61)), *pods()[1:])},
            "HeadLost",
        ),
        ({"ray_jobs": ()}, "HeadLost"),
    ],
    ids=["cluster gone", "cluster leaving", "no head", "new head", "dead node", "new container"],
)
def test_a_run_that_lost_its_head_starts_over_with_new_pods(world, reason):
    seen = observed(job(running()), **{"ray_jobs": None, **world})
    decision = decide(seen, NOW)
    assert decision.status.phase is Phase.RETRYING
    assert (decision.status.attempt, decision.status.restarts) == (2, 1)
    assert state_of(decision, "Training") == ("False", reason)
    live = seen.cluster is not None and not seen.cluster.deleting
    assert decision.actions == ((DELETE,) if live else ())


def test_the_death_of_a_head_is_named():
    heads = (pod(Role.HEAD, created=at(-30), last_termination="OOMKilled"), *pods()[1:])
    decision = decide(observed(job(running()), pods=heads, ray_jobs=None), NOW)
    assert "OOMKilled" in decision.message


def test_a_head_that_is_unready_for_a_moment_is_not_lost():
    heads = (pod(Role.HEAD, ready=False, ready_changed=at(-59)), *pods()[1:])
    decision = decide(observed(job(running()), pods=heads, ray_jobs=None), NOW)
    assert decision.status.phase is Phase.RUNNING


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
    assert state_of(decision, "Stalled") == ("True", "Stalled")


def test_a_run_wakes_when_its_stall_timeout_would_pass():
    seen = observed(
        job(running(), stallTimeoutSeconds=60), ray_jobs=(ray_job(),), step_since=at(-58)
    )
    decision = decide(seen, NOW)
    assert (decision.actions, decision.requeue_after) == ((), 2.0)


def test_a_run_that_takes_too_long_fails():
    seen = observed(
        job(running(), activeDeadlineSeconds=600), ray_jobs=(ray_job(),), step_since=NOW
    )
    decision = decide(seen, NOW)
    assert (decision.status.phase, decision.reason) == (Phase.FAILED, "DeadlineExceeded")


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


def test_pods_stuck_on_a_dead_node_fail_the_job_at_the_startup_deadline():
    state = retrying(-100)
    state = status(Phase.RETRYING, condition("ClusterReady", "False", at(-31)), attempt=2)
    subject = job(state, startupDeadlineSeconds=30)
    decision = decide(observed(subject, cluster=None, ray_jobs=None), NOW)
    assert decision.reason == "StartupDeadlineExceeded"
    assert "on node-0" in decision.message
