"""The volumes of jobs, on a real API server and scheduler with the real KubeRay.

Aspects: pods of a claim for one node meet on it, those of two jobs too; a claim that cannot be
provisioned; a volume that does not attach. Nothing runs on the nodes, so the Event of a volume that
does not attach is written by the test.
"""

from datetime import UTC, datetime

from kubernetes.aio import client

from kube.fake_ray import FakeRay
from kube.operator_harness import CPU_ONLY, Jobs, Operator, condition_of, manifest, start

MULTI_ATTACH = 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) other'
MANY = {"producers": {**CPU_ONLY, "replicas": 4}, "consumers": {**CPU_ONLY, "replicas": 2}}


async def nodes(jobs: Jobs) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in await jobs.pods()}


async def test_the_pods_of_a_job_meet_on_the_node_of_their_claim(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    await start(jobs, ray, **MANY)
    await jobs.until(lambda job: job["status"]["workers"]["producersReady"] == 4)
    assert len(await nodes(jobs)) == 1


async def test_jobs_that_share_a_claim_for_one_node_meet_on_it(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    await jobs.create_claim("shared")
    for name in ("first", "second"):
        await jobs.create(manifest(name, storage={"claimName": "shared"}, **MANY))
    for name in ("first", "second"):
        await jobs.until_phase("Running", name)
        await jobs.until(lambda job: job["status"]["workers"]["producersReady"] == 4, name)
    assert len(await nodes(jobs)) == 1


async def test_a_claim_that_cannot_be_provisioned_is_named_with_its_class_and_the_cause(
    operator: Operator, jobs: Jobs
):
    await jobs.create(manifest(storage={"size": "1Gi", "storageClassName": "does-not-exist"}))
    message = condition_of(await jobs.until_reason("ProvisioningFailed"), "ClusterReady")["message"]
    (claim,) = (
        await client.CoreV1Api(jobs.api).list_namespaced_persistent_volume_claim(jobs.namespace)
    ).items
    assert message.startswith(f"claim {claim.metadata.name}: ")
    assert 'storageclass.storage.k8s.io "does-not-exist" not found' in message
    assert message.endswith("(storage class does-not-exist)")


async def test_a_volume_that_does_not_attach_is_in_the_status_of_the_job(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    await start(jobs, ray)
    (pod,) = await jobs.pods("consumers")
    name = pod["metadata"]["name"]
    core = client.CoreV1Api(jobs.api)
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    status = {  # not Pending: the fake kubelet would make it ready
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [
            {"name": "ray", "image": "i", "imageID": "", "restartCount": 0, "ready": False}
            | {"state": waiting}
        ],
    }
    await core.patch_namespaced_pod_status(name, jobs.namespace, {"status": status})
    now = datetime.now(UTC).isoformat()
    event = {
        "metadata": {"generateName": "attach-"},
        "involvedObject": {"kind": "Pod", "name": name, "namespace": jobs.namespace},
        "reason": "FailedAttachVolume",
        "message": MULTI_ATTACH,
        "type": "Warning",
        "firstTimestamp": now,
        "lastTimestamp": now,
    }
    await core.create_namespaced_event(jobs.namespace, event)
    job = await jobs.until_reason("FailedAttachVolume", timeout=90)
    assert condition_of(job, "ClusterReady")["message"] == f"pod {name}: {MULTI_ATTACH}"
    assert (job["status"]["phase"], job["status"]["attempt"]) == ("Running", 1)
