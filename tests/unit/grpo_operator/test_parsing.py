"""Objects of Kubernetes, KubeRay and Ray parsed into records.

Aspects: jobs that are valid, invalid and of other versions; clusters; pods ready, deleted, and each
cause of not running; attempts among the jobs that Ray lists.
"""

import copy

import pytest

from grpo_operator.model.observed import Problem, RayJob, RayJobState, Role
from grpo_operator.model.parsing import parse_cluster, parse_job, parse_pod, parse_ray_jobs
from grpo_operator.render import ray_cluster
from grpo_operator.settings import Settings
from grpo_trainer.spec import Phase
from support.observations import UID, at, job

JOB = {
    "apiVersion": "grpo-operator.io/v1alpha1",
    "kind": "GRPOJob",
    "metadata": {
        "namespace": "lab",
        "name": "math",
        "uid": UID,
        "resourceVersion": "7",
        "generation": 2,
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "managedFields": [{"manager": "kubectl"}],
    },
    "spec": {"storage": {"claimName": "volume"}, "seed": 3},
    "status": {"phase": "Running", "attempt": 1},
}


def changed(raw, path, value):
    raw = copy.deepcopy(raw)
    *parents, last = path.split(".")
    node = raw
    for name in parents:
        node = node.setdefault(name, {})
    node[last] = value
    return raw


def test_a_job_is_read_with_its_status():
    parsed = parse_job(JOB)
    assert (parsed.namespace, parsed.name, parsed.generation) == ("lab", "math", 2)
    assert parsed.spec.seed == 3
    assert parsed.status.phase is Phase.RUNNING
    assert parsed.created == at(0)
    assert not parsed.deleting


def test_an_invalid_job_keeps_its_faults():
    parsed = parse_job(changed(JOB, "spec.sampling", {"numGenerations": 1}))
    assert parsed.spec is None
    assert "spec.sampling.numGenerations" in parsed.faults


def test_a_job_without_a_volume_is_at_fault_in_a_cluster():
    assert "spec.storage" in parse_job(changed(JOB, "spec", {})).faults


def test_unknown_fields_of_a_newer_spec_are_ignored():
    newer = changed(JOB, "spec.novelty", {"a": 1})
    newer = changed(newer, "spec.sampling", {"temperature": 0.5, "novelty": True})
    parsed = parse_job(newer)
    assert parsed.faults == ""
    assert (parsed.spec.seed, parsed.spec.sampling.temperature) == (3, 0.5)


def test_unknown_fields_of_a_newer_status_are_ignored():
    newer = changed(JOB, "status.novelty", 1)
    newer = changed(newer, "status.progress", {"step": 4, "novelty": 1})
    parsed = parse_job(newer)
    assert (parsed.status.attempt, parsed.status.progress.step) == (1, 4)


def test_conditions_of_a_newer_status_are_ignored_one_by_one():
    conditions = [
        {"type": "Novel", "status": "True"},
        {"type": "Training", "status": "True", "reason": "Running", "severity": "High"},
        {"type": "Stalled", "status": "Perhaps"},
    ]
    parsed = parse_job(changed(JOB, "status.conditions", conditions))
    assert [(str(c.type), c.reason) for c in parsed.status.conditions] == [("Training", "Running")]


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        ("Complete", Phase.SUCCEEDED),
        ("Failed", Phase.FAILED),
        ("Suspended", Phase.SUSPENDED),
        ("Training", Phase.RUNNING),
        ("Accepted", Phase.STARTING),
    ],
)
def test_a_phase_of_a_newer_version_is_derived_from_the_conditions(kind, phase):
    since = "2026-01-02T03:04:05Z"
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": since}]
    newer = changed(JOB, "status.conditions", conditions)
    assert parse_job(changed(newer, "status.phase", "Resizing")).status.phase is phase


CLUSTER = {
    **ray_cluster(job(), Settings()),
    "status": {"state": "ready", "head": {"serviceName": "math-0a1b2c3d-head-svc"}},
}
CLUSTER["metadata"] |= {"uid": "u", "resourceVersion": "9"}


def test_a_cluster_is_read():
    parsed = parse_cluster(CLUSTER)
    assert (parsed.producers, parsed.service) == (2, "math-0a1b2c3d-head-svc")
    assert not parsed.suspended
    assert parsed.problem is None


def test_a_new_cluster_has_no_service_yet():
    assert parse_cluster(changed(CLUSTER, "status", {})).service is None
    assert parse_cluster(changed(CLUSTER, "status.head", {"serviceName": ""})).service is None


@pytest.mark.parametrize("name", ["169.254.169.254/x?", "a.other", "x:80", "a/../b", "A", 7, "x@y"])
def test_a_service_name_that_would_change_the_host_of_a_url_is_ignored(name):
    assert parse_cluster(changed(CLUSTER, "status.head", {"serviceName": name})).service is None


def test_pods_that_kuberay_cannot_create_are_a_problem_of_the_cluster():
    condition = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreateHeadPod",
        "message": "exceeded quota: q",
    }
    parsed = parse_cluster(changed(CLUSTER, "status.conditions", [condition]))
    assert parsed.problem == Problem("FailedCreateHeadPod", "exceeded quota: q")


def pod(status=None, group="headgroup", **metadata):
    return {
        "metadata": {
            "name": "p",
            "uid": "u",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"ray.io/group": group},
            "ownerReferences": [{"kind": "RayCluster", "controller": True}],
            **metadata,
        },
        "spec": {"nodeName": "n"},
        "status": status or {},
    }


@pytest.mark.parametrize(
    ("group", "role"),
    [("headgroup", Role.HEAD), ("producers", Role.PRODUCER), ("consumers", Role.CONSUMER)],
)
def test_the_group_is_the_role(group, role):
    assert parse_pod(pod(group=group)).role is role


def test_a_pod_of_no_group_is_ignored():
    assert parse_pod(pod(group="other")) is None


@pytest.mark.parametrize(
    "owners",
    [[], [{"kind": "RayCluster"}], [{"kind": "ReplicaSet", "controller": True}]],
    ids=["none", "no-controller", "another"],
)
def test_a_copy_of_a_pod_differs_from_one_that_a_ray_cluster_controls(owners):
    assert parse_pod(pod()).controlled
    assert not parse_pod(pod(ownerReferences=owners)).controlled


def test_readiness_has_a_time():
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:15Z"}
    parsed = parse_pod(pod({"conditions": [ready]}))
    assert (parsed.ready, parsed.ready_changed, parsed.node) == (True, at(10), "n")


def test_a_deleted_pod_has_a_deadline():
    assert parse_pod(pod(deletionTimestamp="2026-01-02T03:04:35Z")).deletion_deadline == at(30)


def container(state, last=None):
    return {"name": "ray", "state": state, "lastState": last or {}}


KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        (
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/4 nodes are available",
                    }
                ]
            },
            "Unschedulable",
            "0/4 nodes",
        ),
        (
            {
                "containerStatuses": [
                    container({"waiting": {"reason": "ImagePullBackOff", "message": "no image"}})
                ]
            },
            "ImagePullBackOff",
            "container ray: no image",
        ),
        (
            {
                "containerStatuses": [
                    container({"waiting": {"reason": "CrashLoopBackOff"}}, last=KILLED)
                ]
            },
            "CrashLoopBackOff",
            "OOMKilled, exit code 137",
        ),
        ({"containerStatuses": [container(KILLED)]}, "OOMKilled", "exit code 137"),
        (
            {"initContainerStatuses": [container({"waiting": {"reason": "ErrImagePull"}})]},
            "ErrImagePull",
            "container ray",
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, "Evicted", "disk"),
    ],
    ids=["unschedulable", "image", "crash loop", "ended", "init", "evicted"],
)
def test_why_a_pod_does_not_run(status, reason, text):
    problem = parse_pod(pod(status)).problem
    assert problem.reason == reason
    assert "pod p" in problem.message
    assert text in problem.message


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
def test_a_starting_pod_has_no_problem(reason):
    waiting = {"containerStatuses": [container({"waiting": {"reason": reason}})]}
    assert parse_pod(pod(waiting)).problem is None


def test_the_last_termination_of_a_container_is_kept():
    status = {"containerStatuses": [container({"running": {}}, last=KILLED)]}
    assert parse_pod(pod(status)).last_termination == "OOMKilled"


def test_the_attempts_of_a_job_are_found_among_all_ray_jobs():
    answer = [
        {"submission_id": "0a1b2c3d-2", "status": "RUNNING"},
        {"submission_id": None, "status": "RUNNING", "type": "DRIVER"},
        {"submission_id": "raysubmit_x", "status": "FAILED"},
        {
            "submission_id": "0a1b2c3d-1",
            "status": "FAILED",
            "driver_exit_code": 64,
            "message": "bad",
        },
    ]
    assert parse_ray_jobs(UID, answer) == (
        RayJob(1, RayJobState.FAILED, 64, "bad"),
        RayJob(2, RayJobState.RUNNING),
    )


def test_the_spec_of_a_generation_is_read_once():
    known = parse_job(JOB)
    later = changed(JOB, "metadata.resourceVersion", "8")
    assert parse_job(later, known).spec is known.spec
    assert parse_job(later, known).resource_version == "8"
    newer = changed(changed(JOB, "metadata.generation", 3), "spec.seed", 4)
    assert parse_job(newer, known).spec.seed == 4
    namesake = changed(changed(JOB, "metadata.uid", "ffffffff-0"), "spec.seed", 5)
    assert parse_job(namesake, known).spec.seed == 5
