"""What keeps a job from starting is named in its status, and removed from it once it is fixed.

Aspects: images, accelerators, quotas that grow, refused children, policies, pod templates, Kueue, a
head that hangs.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from kubernetes.aio import client

from kube.fake_ray import FakeRay
from kube.harness import MISSING_IMAGE, Object
from kube.operator_harness import (
    CLUSTERS,
    MERGE_PATCH,
    Jobs,
    Operator,
    condition_of,
    manifest,
    phase_of,
)


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


async def grow_quota(core: client.CoreV1Api, namespace: str, **hard: str) -> None:
    await core.patch_namespaced_resource_quota(
        "small", namespace, {"spec": {"hard": hard}}, _content_type=MERGE_PATCH
    )


async def test_an_exceeded_quota_of_pods_is_shown_and_recovered_from(
    operator: Operator, jobs: Jobs
):
    core = client.CoreV1Api(jobs.api)
    await core.create_namespaced_resource_quota(jobs.namespace, quota(pods="2"))
    await jobs.create(manifest())
    await jobs.until(lambda job: "exceeded quota" in condition_of(job, "ClusterReady")["message"])
    await grow_quota(core, jobs.namespace, pods="20")
    await jobs.until_phase("Running", timeout=60)


async def test_a_child_that_the_api_server_refuses_is_shown(operator: Operator, jobs: Jobs):
    core = client.CoreV1Api(jobs.api)
    await core.create_namespaced_resource_quota(jobs.namespace, quota(persistentvolumeclaims="0"))
    await jobs.create(manifest())
    refused = await jobs.until(
        lambda job: condition_of(job, "ClusterReady")["reason"] == "QuotaExceeded"
    )
    assert "exceeded quota: small" in condition_of(refused, "ClusterReady")["message"]
    await grow_quota(core, jobs.namespace, persistentvolumeclaims="1")
    running = await jobs.until_phase("Running")
    assert condition_of(running, "ClusterReady")["reason"] == "PodsReady"


async def test_the_startup_deadline_names_what_was_refused(operator: Operator, jobs: Jobs):
    core = client.CoreV1Api(jobs.api)
    await core.create_namespaced_resource_quota(jobs.namespace, quota(persistentvolumeclaims="0"))
    await jobs.create(manifest(startupDeadlineSeconds=5))
    failed = await jobs.until_phase("Failed")
    message = condition_of(failed, "Failed")["message"]
    assert message.startswith("not ready within startupDeadlineSeconds (5): QuotaExceeded: ")
    assert await jobs.clusters() == []


@contextlib.asynccontextmanager
async def policy_against_clusters(jobs: Jobs, message: str) -> AsyncIterator[None]:
    """Inside the block the API server denies every RayCluster in the namespace."""
    admission = client.AdmissionregistrationV1Api(jobs.api)
    name = f"none-in-{jobs.namespace}"
    rule = {
        "apiGroups": ["ray.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["rayclusters"],
    }
    policy = {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": message}],
        },
    }
    namespaces = {"matchLabels": {"kubernetes.io/metadata.name": jobs.namespace}}
    binding = {
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": namespaces},
        },
    }
    await admission.create_validating_admission_policy(policy)
    await admission.create_validating_admission_policy_binding(binding)
    try:
        async with asyncio.timeout(30):
            while message not in await jobs.refusal_of_a_cluster():
                await asyncio.sleep(0.2)  # there is no event when a policy takes effect
        yield
    finally:
        await admission.delete_validating_admission_policy_binding(name)
        await admission.delete_validating_admission_policy(name)


async def test_a_cluster_that_a_policy_denies_is_shown_and_made_when_it_may_be(
    operator: Operator, jobs: Jobs
):
    async with policy_against_clusters(jobs, "no clusters on Sundays"):
        await jobs.create(manifest())
        denied = await jobs.until(
            lambda job: condition_of(job, "ClusterReady")["reason"] == "AdmissionDenied"
        )
        assert "no clusters on Sundays" in condition_of(denied, "ClusterReady")["message"]
        assert phase_of(denied) == "Starting"
    await jobs.until_phase("Running", timeout=60)


async def test_a_pod_template_that_makes_no_sense_is_shown(operator: Operator, jobs: Jobs):
    await jobs.create(manifest(head={"podTemplate": {"spec": {"containers": [{"image": "x"}]}}}))
    refused = await jobs.until(
        lambda job: condition_of(job, "ClusterReady")["reason"] == "InvalidPodTemplate"
    )
    assert "containers needs `name`" in condition_of(refused, "ClusterReady")["message"]


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


async def test_a_dashboard_that_hangs_is_named_and_does_no_harm(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    ray.hanging = True
    await jobs.create(manifest())
    await jobs.until(lambda job: condition_of(job, "ClusterReady")["reason"] == "HeadNotAnswering")
    ray.hanging = False
    head = await ray.only_head()
    await head.until_running(attempt=1)
    await jobs.until_phase("Running")
    ray.hanging = True
    await asyncio.sleep(6)  # a poll and its timeout
    assert phase_of(await jobs.get()) == "Running"
    ray.hanging = False
    head.end(0)
    await jobs.until_phase("Succeeded")
    assert head.attempts == [1]
