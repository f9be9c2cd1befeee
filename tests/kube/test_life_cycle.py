"""A job from birth to end, on a real API server with the real KubeRay; only Ray itself is a
stand-in.

Aspects: success, progress, failures of the driver, loss of the head, bad input, limits and
deadlines, causes of not starting, stalls, suspension, scaling, time to live, deletion, namesakes.
"""

import base64
from typing import Any

import pytest
from kubernetes.aio import client

from kube.fake_ray import FakeRay
from kube.harness import MISSING_IMAGE, Object
from kube.operator_harness import CLUSTERS, Jobs, Operator, condition_of, manifest, phase_of

pytest_plugins = ["kube.operator_harness"]


async def start(jobs: Jobs, ray: FakeRay, **spec: Any) -> Any:
    """A job whose first attempt runs; returns its head."""
    await jobs.create(manifest(**spec))
    await jobs.until_phase("Running")
    return await ray.only_head()


async def test_a_job_runs_and_succeeds(operator: Operator, jobs: Jobs, ray: FakeRay):
    head = await start(jobs, ray)
    head.report(7, reward=0.123456, samplesPerSecond=12.0, bufferDepth=3)
    running = await jobs.until(lambda job: job["status"]["progress"]["step"] == 7)
    assert running["status"]["metrics"]["reward"] == 0.1235
    assert running["status"]["workers"]["producersReady"] == 2
    assert condition_of(running, "ClusterReady")["status"] == "True"
    head.end(0)
    done = await jobs.until_phase("Succeeded")
    assert condition_of(done, "Complete")["status"] == "True"
    assert "completionTime" in done["status"]
    await jobs.until_gone(CLUSTERS)
    assert (await jobs.get())["status"] == done["status"], "a final status is never written again"
    assert head.attempts == [1]
    assert "Running" in {e["reason"] for e in await jobs.events()}


async def test_the_children_are_as_rendered(operator: Operator, jobs: Jobs, ray: FakeRay):
    head = await start(jobs, ray)
    job, (cluster,) = await jobs.get(), await jobs.clusters()
    name = f"job-{job['metadata']['uid'][:8]}"
    assert cluster["metadata"]["name"] == name == job["status"]["rayClusterName"]
    core = client.CoreV1Api(jobs.api)
    secret = await core.read_namespaced_secret(name, jobs.namespace)
    assert head.token == base64.b64decode(secret.data["token"]).decode()
    claim = await core.read_namespaced_persistent_volume_claim(name, jobs.namespace)
    assert not claim.metadata.owner_references, "the claim outlives the job"
    config = await core.read_namespaced_config_map(name, jobs.namespace)
    assert set(config.data) == {"spec.json", "drain.py"}
    service = await core.read_namespaced_service(f"{name}-head-svc", jobs.namespace)
    ports = {port.name: port.port for port in service.spec.ports}
    wanted = {"gcs-server": 6379, "dashboard": 8265, "client": 10001, "driver": 9464}
    assert wanted.items() <= ports.items()


async def test_a_failed_driver_is_started_again_on_the_same_cluster(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    (before,) = await jobs.clusters()
    head.end(1, "Traceback: CUDA out of memory")
    retrying = await jobs.until_phase("Retrying")
    assert (retrying["status"]["attempt"], retrying["status"]["restarts"]) == (2, 1)
    assert "CUDA out of memory" in condition_of(retrying, "Training")["message"]
    await head.until_running(attempt=2)
    await jobs.until_phase("Running")
    (after,) = await jobs.clusters()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    warnings = [e["reason"] for e in await jobs.events() if e["type"] == "Warning"]
    assert "DriverFailed" in warnings


async def test_a_lost_head_costs_the_cluster_and_one_attempt(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    (before,) = await jobs.clusters()
    (pod,) = await jobs.pods("headgroup")
    core = client.CoreV1Api(jobs.api)
    head.restart()
    await core.delete_namespaced_pod(
        pod["metadata"]["name"], jobs.namespace, grace_period_seconds=0
    )
    retrying = await jobs.until_phase("Retrying")
    assert condition_of(retrying, "Training")["reason"] == "HeadLost"
    await head.until_running(attempt=2)
    (after,) = await jobs.clusters()
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert (await jobs.until_phase("Running"))["status"]["restarts"] == 1
    assert head.attempts == [1, 2]


async def test_a_cluster_deleted_by_hand_is_made_anew(operator: Operator, jobs: Jobs, ray: FakeRay):
    head = await start(jobs, ray)
    (cluster,) = await jobs.clusters()
    head.restart()
    await client.CustomObjectsApi(jobs.api).delete_namespaced_custom_object(
        *CLUSTERS[:2], jobs.namespace, CLUSTERS[2], cluster["metadata"]["name"]
    )
    retrying = await jobs.until(lambda job: job["status"]["attempt"] == 2)
    assert condition_of(retrying, "Training")["reason"] == "ClusterLost"
    await head.until_running(attempt=2)


async def test_bad_input_fails_at_once(operator: Operator, jobs: Jobs, ray: FakeRay):
    head = await start(jobs, ray)
    head.end(64, "data.jsonl row 3: no gt_answer")
    failed = await jobs.until_phase("Failed")
    assert condition_of(failed, "Failed")["reason"] == "BadInput"
    assert "row 3" in condition_of(failed, "Failed")["message"]
    await jobs.until_gone(CLUSTERS)
    assert head.attempts == [1]


async def test_failures_beyond_the_limit_fail_the_job(operator: Operator, jobs: Jobs, ray: FakeRay):
    head = await start(jobs, ray, backoffLimit=0)
    head.end(1)
    failed = await jobs.until_phase("Failed")
    assert condition_of(failed, "Failed")["reason"] == "BackoffLimitExceeded"
    await jobs.until_gone(CLUSTERS)


async def test_a_run_that_takes_too_long_fails(operator: Operator, jobs: Jobs, ray: FakeRay):
    await start(jobs, ray)
    await jobs.patch({"activeDeadlineSeconds": 1})
    failed = await jobs.until_phase("Failed")
    assert condition_of(failed, "Failed")["reason"] == "DeadlineExceeded"


async def test_an_image_that_cannot_be_pulled_is_named_and_fails_the_job_in_time(
    operator: Operator, jobs: Jobs
):
    consumers = {"accelerator": "cpu", "image": MISSING_IMAGE}
    await jobs.create(manifest(consumers=consumers, startupDeadlineSeconds=6))
    waiting = await jobs.until(
        lambda job: condition_of(job, "ClusterReady")["reason"] == "ImagePullBackOff"
    )
    assert "consumers" in condition_of(waiting, "ClusterReady")["message"]
    failed = await jobs.until_phase("Failed")
    assert condition_of(failed, "Failed")["reason"] == "StartupDeadlineExceeded"
    assert "ImagePullBackOff" in condition_of(failed, "Failed")["message"]


async def test_accelerators_that_no_node_has_are_named(operator: Operator, jobs: Jobs):
    await jobs.create(manifest(consumers={"processesPerReplica": 64}))
    waiting = await jobs.until(
        lambda job: condition_of(job, "ClusterReady")["reason"] == "Unschedulable"
    )
    assert "nvidia.com/gpu" in condition_of(waiting, "ClusterReady")["message"]
    assert phase_of(waiting) == "Starting"


def quota(**hard: str) -> Object:
    return {"metadata": {"name": "small"}, "spec": {"hard": hard}}


async def test_an_exceeded_quota_of_pods_is_shown_and_recovered_from(
    operator: Operator, jobs: Jobs
):
    core = client.CoreV1Api(jobs.api)
    await core.create_namespaced_resource_quota(jobs.namespace, quota(pods="2"))
    await jobs.create(manifest())
    await jobs.until(lambda job: "exceeded quota" in condition_of(job, "ClusterReady")["message"])
    await core.delete_namespaced_resource_quota("small", jobs.namespace)
    await jobs.until_phase("Running", timeout=60)


async def test_a_child_that_the_api_server_refuses_is_shown(operator: Operator, jobs: Jobs):
    core = client.CoreV1Api(jobs.api)
    await core.create_namespaced_resource_quota(jobs.namespace, quota(persistentvolumeclaims="0"))
    await jobs.create(manifest())
    refused = await jobs.until(
        lambda job: condition_of(job, "ClusterReady")["reason"] == "QuotaExceeded"
    )
    assert "exceeded quota: small" in condition_of(refused, "ClusterReady")["message"]
    await core.delete_namespaced_resource_quota("small", jobs.namespace)
    await jobs.until_phase("Running")


async def test_a_pod_template_that_makes_no_sense_is_shown(operator: Operator, jobs: Jobs):
    await jobs.create(manifest(head={"podTemplate": {"spec": {"containers": [{"image": "x"}]}}}))
    refused = await jobs.until(
        lambda job: condition_of(job, "ClusterReady")["reason"] == "InvalidPodTemplate"
    )
    assert "containers needs `name`" in condition_of(refused, "ClusterReady")["message"]


async def test_a_run_without_steps_is_dumped_and_started_over(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray, stallTimeoutSeconds=4)
    retrying = await jobs.until_phase("Retrying")
    assert condition_of(retrying, "Stalled")["status"] == "True"
    assert head.asked == ["stacks"]
    assert len(head.stops) == 1
    await head.until_running(attempt=2)
    head.report(1)
    await jobs.until(lambda job: condition_of(job, "Stalled")["status"] == "False")


async def test_a_suspended_run_drains_frees_its_pods_and_resumes(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    await jobs.patch({"suspend": True})
    suspended = await jobs.until_phase("Suspended")
    assert head.asked == ["drain"]
    assert suspended["status"]["restarts"] == 0
    assert await jobs.clusters() == []
    assert await jobs.pods() == []
    await jobs.patch({"suspend": False})
    await head.until_running(attempt=2)
    running = await jobs.until_phase("Running")
    assert condition_of(running, "Suspended")["status"] == "False"


async def test_a_job_suspended_at_birth_creates_nothing(operator: Operator, jobs: Jobs):
    await jobs.create(manifest(suspend=True))
    await jobs.until_phase("Suspended")
    assert await jobs.clusters() == []
    await jobs.patch({"suspend": False})
    running = await jobs.until_phase("Running")
    assert running["status"]["attempt"] == 1


async def test_a_suspension_that_is_revoked_after_a_moment_leaves_a_whole_job(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    await jobs.patch({"suspend": True})
    await jobs.until(lambda job: phase_of(job) in ("Suspending", "Suspended"))
    await jobs.patch({"suspend": False})
    await head.until_running(attempt=2)
    await jobs.until_phase("Running")
    (cluster,) = await jobs.clusters()
    owned = {pod["metadata"]["labels"]["ray.io/cluster"] for pod in await jobs.pods()}
    assert owned == {cluster["metadata"]["name"]}
    assert len(head.active) == 1


async def test_producers_scale_while_the_run_goes_on(operator: Operator, jobs: Jobs, ray: FakeRay):
    head = await start(jobs, ray)
    await jobs.patch({"producers": {"replicas": 4}})
    scaled = await jobs.until(lambda job: job["status"]["workers"]["producersReady"] == 4)
    assert phase_of(scaled) == "Running"
    scale = await client.CustomObjectsApi(jobs.api).get_namespaced_custom_object_scale(
        "grpo-operator.io", "v1alpha1", jobs.namespace, "grpojobs", "job"
    )
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (4, 4)
    selected = await client.CoreV1Api(jobs.api).list_namespaced_pod(
        jobs.namespace, label_selector=scale["status"]["selector"]
    )
    assert len(selected.items) == 4
    await jobs.patch({"producers": {"replicas": 1}})
    await jobs.until(lambda job: job["status"]["workers"]["producersReady"] == 1)
    assert head.attempts == [1]


async def test_a_finished_job_is_deleted_after_its_time_to_live(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray, ttlSecondsAfterFinished=2)
    head.end(0)
    await jobs.until_gone()


async def test_a_deleted_job_takes_its_cluster_along_even_without_the_operator(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    await start(jobs, ray)
    job = await jobs.get()
    assert "finalizers" not in job["metadata"]
    assert "annotations" not in job["metadata"]
    operator.kill()
    await operator.process.wait()
    await jobs.delete()
    await jobs.until_gone(CLUSTERS)
    await jobs.until_pods(lambda pods: not pods)


async def test_a_namesake_gets_children_of_its_own(operator: Operator, jobs: Jobs, ray: FakeRay):
    await start(jobs, ray)
    old = await jobs.get()
    await jobs.delete()
    new = await jobs.create(manifest())
    running = await jobs.until(
        lambda job: job["metadata"]["uid"] == new["metadata"]["uid"] and phase_of(job) == "Running"
    )
    assert running["status"]["attempt"] == 1
    await jobs.until_cluster(
        lambda cluster: cluster["metadata"]["name"] == running["status"]["rayClusterName"]
    )
    assert old["status"]["rayClusterName"] != running["status"]["rayClusterName"]


async def test_a_failed_job_stays_failed_when_its_cluster_is_deleted(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray, backoffLimit=0)
    head.end(1)
    failed = await jobs.until_phase("Failed")
    await jobs.until_gone(CLUSTERS)
    await jobs.patch({"backoffLimit": 5})
    assert (await jobs.get())["status"] == failed["status"]


async def test_a_job_queued_by_kueue_waits_and_starts_when_it_is_admitted(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    await jobs.create(manifest(queueName="gpus"))
    cluster = await jobs.until_cluster(lambda cluster: True)
    assert cluster["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    custom = client.CustomObjectsApi(jobs.api)

    async def kueue(suspend: bool) -> None:
        await custom.patch_namespaced_custom_object(
            *CLUSTERS[:2],
            jobs.namespace,
            CLUSTERS[2],
            cluster["metadata"]["name"],
            {"spec": {"suspend": suspend}},
            _content_type="application/merge-patch+json",
        )

    await jobs.until_phase("Running")
    head = await ray.only_head()
    await kueue(suspend=True)
    head.restart()
    queued = await jobs.until_phase("Queued")
    assert condition_of(queued, "Training")["reason"] == "Preempted"
    assert (queued["status"]["attempt"], queued["status"]["restarts"]) == (2, 0)
    await kueue(suspend=False)
    await head.until_running(attempt=2)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_the_operator_says_that_it_is_well(operator: Operator, path: str):
    await operator.until_ready()
    assert await operator.get(path) == (200, "ok")


async def test_the_operators_metrics_have_the_names_of_the_contract(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    head.end(1)
    await jobs.until_phase("Retrying")
    _, text = await operator.get("/metrics")
    assert 'grpo_operator_jobs{phase="Retrying"} 1.0' in text
    assert 'grpo_operator_retries_total{reason="DriverFailed"} 1.0' in text
    for name in (
        "reconcile_seconds_count",
        "queue_depth",
        "job_ready_seconds_count",
        "lost_accelerator_seconds_total",
        "status_latency_seconds_count",
        'api_requests_total{code="201",resource="rayclusters",verb="create"}',
    ):
        assert f"grpo_operator_{name}" in text
