"""The rows of the operator's table from creation to success.

Aspects: creation, starting, running, ends of the driver.
"""

from dataclasses import replace

import pytest

from grpo_operator.controller.decide import decide
from grpo_operator.model.decision import (
    CreateCluster,
    DeleteCluster,
    StopDriver,
    Submit,
)
from grpo_operator.model.observed import Problem, Role
from grpo_trainer.spec import (
    CheckpointStatus,
    MetricsStatus,
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
    pod,
    pods,
    ray_job,
    retrying,
    running,
    starting,
    state_of,
)

DELETE = DeleteCluster("cluster-uid")


def test_a_job_with_a_faulty_spec_fails_and_creates_nothing():
    subject = observed(job(faults="spec.seed: Invalid value: -1"), **NOTHING)
    decision = decide(subject, NOW)
    assert decision.actions == ()
    assert decision.status.phase is Phase.FAILED
    assert state_of(decision, "Accepted") == ("False", "InvalidSpec")
    assert state_of(decision, "Failed") == ("True", "InvalidSpec")
    assert "spec.seed" in decision.message


def test_a_job_that_is_created_suspended_creates_nothing():
    decision = decide(observed(job(suspend=True), **NOTHING), NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.SUSPENDED)
    assert decision.status.attempt == 0
    assert decision.status.start_time is None


def test_a_new_job_gets_its_cluster_and_its_first_attempt():
    decision = decide(observed(job(), **NOTHING), NOW)
    assert decision.actions == (CreateCluster(),)
    assert decision.status.phase is Phase.STARTING
    assert decision.status.attempt == 1
    assert decision.status.start_time == NOW
    assert decision.status.ray_cluster_name == "math-0a1b2c3d"


def test_a_job_that_is_being_deleted_is_left_alone():
    subject = replace(job(), deleting=True)
    decision = decide(observed(subject, **NOTHING), NOW)
    assert (decision.actions, decision.status) == ((), subject.status)


def test_a_refusal_of_the_api_server_is_reported():
    problem = Problem("QuotaExceeded", "exceeded quota: gpus")
    decision = decide(observed(job(starting()), problem=problem, **NOTHING), NOW)
    assert decision.status.phase is Phase.STARTING
    assert state_of(decision, "ClusterReady") == ("False", "QuotaExceeded")
    assert decision.message == "exceeded quota: gpus"


@pytest.mark.parametrize("role", list(Role))
def test_a_pod_that_cannot_start_is_named_with_its_cause(role):
    problem = Problem("ImagePullBackOff", f"pod {role}-0, container ray: no such image")
    broken = tuple(
        replace(p, ready=False, problem=problem if p.role is role else None) for p in pods()
    )
    decision = decide(observed(job(starting()), pods=broken, ray_jobs=None), NOW)
    assert decision.actions == ()
    assert decision.status.phase is Phase.STARTING
    assert state_of(decision, "ClusterReady") == ("False", "ImagePullBackOff")
    assert "no such image" in decision.message


def test_pods_that_kuberay_could_not_create_come_before_any_other_cause():
    refused = cluster(problem=Problem("FailedCreateWorkerPod", "exceeded quota"))
    subject = observed(job(starting()), cluster=refused, pods=pods()[:1], ray_jobs=())
    assert state_of(decide(subject, NOW), "ClusterReady") == ("False", "FailedCreateWorkerPod")


def test_missing_pods_are_counted_by_role():
    subject = observed(job(starting()), pods=(pod(Role.HEAD),))
    assert decide(subject, NOW).message == "consumers: 0 of 1 ready; producers: 0 of 1 ready"


def unbound(**fields):
    text = "pod head-0: 0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    return pod(Role.HEAD, ready=False, problem=Problem("Unschedulable", text), **fields)


def test_a_volume_that_is_being_provisioned_is_no_fault_for_a_minute():
    young = observed(job(starting()), pods=(unbound(created=at(-20)),), ray_jobs=None)
    decision = decide(young, NOW)
    assert state_of(decision, "ClusterReady") == ("False", "PodsPending")
    assert decision.requeue_after == 15, "its Events are read until then"
    old = observed(job(starting()), pods=(unbound(created=at(-60)),), ray_jobs=None)
    assert state_of(decide(old, NOW), "ClusterReady") == ("False", "Unschedulable")


@pytest.mark.parametrize(
    ("storage", "claim"),
    [
        ({"claimName": "data"}, "(claim data has no Event yet)"),
        ({"size": "1Gi"}, "(claim math-0a1b2c3d (storage class of the cluster (default)) has no"),
        (
            {"size": "1Gi", "storageClassName": "does-not-exist"},
            "(claim math-0a1b2c3d (storage class does-not-exist) has no Event yet)",
        ),
    ],
)
def test_an_unbound_claim_is_named_with_its_storage_class(storage, claim):
    subject = job(starting(), storage=storage)
    decision = decide(observed(subject, pods=(unbound(created=at(-60)),), ray_jobs=None), NOW)
    assert claim in decision.message


def test_a_conflict_of_the_scheduler_is_no_fault_of_a_young_pod():
    lost = Problem("SchedulerError", "the object has been modified; please try again")
    young = pod(Role.PRODUCER, ready=False, problem=lost, created=at(-20))
    decision = decide(observed(job(starting()), pods=(young,), ray_jobs=None), NOW)
    assert state_of(decision, "ClusterReady") == ("False", "PodsPending")
    assert decision.requeue_after == 40
    old = replace(young, created=at(-60))
    decision = decide(observed(job(starting()), pods=(old,), ray_jobs=None), NOW)
    assert state_of(decision, "ClusterReady") == ("False", "SchedulerError")


def test_a_volume_that_is_being_provisioned_hides_no_other_fault():
    broken = pod(Role.CONSUMER, ready=False, problem=Problem("ImagePullBackOff", "no image"))
    subject = observed(job(starting()), pods=(unbound(created=at(-20)), broken), ray_jobs=None)
    assert state_of(decide(subject, NOW), "ClusterReady") == ("False", "ImagePullBackOff")


def test_training_starts_with_the_least_number_of_producers():
    subject = observed(job(starting()), pods=pods()[:3])
    decision = decide(subject, NOW)
    assert decision.actions == (Submit(1),)
    assert decision.status.workers.producers_ready == 1
    assert state_of(decision, "ClusterReady") == ("True", "PodsReady")
    assert state_of(decision, "Training") == ("True", "Submitted")


def test_a_head_that_does_not_respond_yet_is_waited_for():
    decision = decide(observed(job(starting()), ray_jobs=None), NOW)
    assert decision.actions == ()
    assert state_of(decision, "ClusterReady") == ("False", "HeadNotAnswering")


def test_an_attempt_waits_until_an_older_one_has_stopped():
    subject = observed(job(retrying(-100)), ray_jobs=(ray_job(1, "RUNNING"),))
    assert decide(subject, NOW).actions == (StopDriver(1),)


def test_a_submission_that_was_not_recorded_is_found_again():
    subject = observed(job(starting()), ray_jobs=(ray_job(1, "RUNNING"),))
    decision = decide(subject, NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.RUNNING)


@pytest.mark.parametrize(
    ("fields", "state"),
    [({}, ("False", "PodsPending")), ({"queueName": "gpus"}, ("Unknown", "Queued"))],
)
def test_the_status_of_a_creation_still_holds_when_the_cluster_exists(fields, state):
    created = decide(observed(job(**fields), **NOTHING), NOW)
    assert created.actions == (CreateCluster(),)
    assert state_of(created, "ClusterReady") == state
    there = cluster(suspended="queueName" in fields)
    subject = observed(job(created.status, **fields), cluster=there, pods=(), ray_jobs=None)
    assert decide(subject, NOW).status == created.status


def test_a_created_cluster_that_was_not_recorded_is_found_again():
    decision = decide(observed(job()), NOW)
    assert decision.actions == (Submit(1),)
    assert decision.status.attempt == 1


def test_a_running_driver_is_polled_and_its_report_is_copied():
    progress = Progress(
        state=RunState.RUNNING,
        attempt=1,
        progress=ProgressStatus(step=7, total_steps=100, percent=7.0),
        metrics=MetricsStatus(reward=0.123456, buffer_depth=3),
        checkpoint=CheckpointStatus(step=5, path="checkpoints/step-5", time=NOW),
    )
    subject = observed(job(running()), ray_jobs=(ray_job(),), progress=progress)
    decision = decide(subject, NOW)
    assert (decision.actions, decision.requeue_after) == ((), 5.0)
    assert decision.status.progress.step == 7
    assert decision.status.metrics.reward == 0.1235
    assert decision.status.checkpoint == progress.checkpoint
    assert decision.status.workers.producers_ready == 2
    assert state_of(decision, "Training") == ("True", "Running")


@pytest.mark.parametrize(
    ("protection", "state"),
    [
        ("landlock", ("True", "Landlock")),
        ("namespaces", ("True", "Namespaces")),
        ("none", ("False", "Unconfined")),
    ],
)
def test_what_confines_the_programs_of_completions_is_a_condition(protection, state):
    progress = Progress(attempt=1, code_protection=protection)
    decision = decide(observed(job(running()), ray_jobs=(ray_job(),), progress=progress), NOW)
    assert state_of(decision, "CodeConfined") == state
    silent = decide(observed(job(decision.status), ray_jobs=None), NOW)
    assert state_of(silent, "CodeConfined") == state


def test_without_programs_of_completions_nothing_is_said_of_their_confinement():
    subject = observed(job(running()), ray_jobs=(ray_job(),), progress=Progress(attempt=1))
    kinds = [str(c.type) for c in decide(subject, NOW).status.conditions]
    assert "Training" in kinds and "CodeConfined" not in kinds


def test_a_pending_driver_is_still_starting():
    subject = observed(job(starting()), ray_jobs=(ray_job(1, "PENDING"),))
    assert decide(subject, NOW).status.phase is Phase.STARTING


def test_a_head_that_is_silent_for_a_moment_changes_nothing():
    reported = decide(observed(job(running()), ray_jobs=(ray_job(),)), NOW).status
    decision = decide(observed(job(reported), ray_jobs=None), NOW)
    assert (decision.actions, decision.status) == ((), reported)


def test_a_lost_producer_does_not_stop_the_run():
    subject = observed(job(running()), pods=pods()[:2], ray_jobs=(ray_job(),))
    decision = decide(subject, NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.RUNNING)
    assert state_of(decision, "ClusterReady")[0] == "False"


def test_a_driver_that_succeeds_ends_the_job_before_its_cluster_is_deleted():
    subject = observed(job(running()), ray_jobs=(ray_job(1, "SUCCEEDED", 0),))
    decision = decide(subject, NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.SUCCEEDED)
    assert decision.status.completion_time == NOW
    assert state_of(decision, "Complete")[0] == "True"
    again = decide(observed(job(decision.status), ray_jobs=None), NOW)
    assert (again.actions, again.status) == ((DELETE,), decision.status)


def test_bad_input_is_never_retried():
    subject = observed(job(running()), ray_jobs=(ray_job(1, "FAILED", 64),))
    decision = decide(subject, NOW)
    assert (decision.status.phase, decision.reason) == (Phase.FAILED, "BadInput")
    assert decision.status.restarts == 0


@pytest.mark.parametrize(("state", "code"), [("FAILED", 1), ("FAILED", 75), ("STOPPED", None)])
def test_any_other_end_is_retried_on_the_same_cluster(state, code):
    subject = observed(job(running()), ray_jobs=(ray_job(1, state, code),))
    decision = decide(subject, NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.RETRYING)
    assert (decision.status.attempt, decision.status.restarts) == (2, 1)
    assert state_of(decision, "Training") == ("False", "DriverFailed")


def test_a_failure_is_counted_once():
    subject = observed(job(running()), ray_jobs=(ray_job(1, "FAILED", 1),))
    first = decide(subject, NOW)
    again = decide(replace(subject, job=job(first.status)), NOW)
    assert again.status.restarts == 1


def test_failures_beyond_the_limit_end_the_job():
    state = running(attempt=4, restarts=3)
    decision = decide(observed(job(state), ray_jobs=(ray_job(4, "FAILED", 1),)), NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.FAILED)
    assert decision.reason == "BackoffLimitExceeded"
    assert "DriverFailed" in decision.message
    assert "exit code 1" in decision.message
