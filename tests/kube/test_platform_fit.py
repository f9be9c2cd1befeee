"""Jobs beside other controllers, on a real API server.

Aspects: labels and annotations, with the chart's; queues that Kueue names; jobs of other
controllers; two releases for one namespace.
"""

import json
from pathlib import Path

import pytest
from kubernetes.aio import client

from kube.fake_ray import FakeRay
from kube.harness import Cluster
from kube.operator_harness import (
    CLUSTERS,
    MERGE_PATCH,
    Jobs,
    Operator,
    condition_of,
    manifest,
    running_operator,
    start,
)

DEFAULTS = {
    "labels": {"center": "none", "owner": "platform"},
    "annotations": {"karpenter.sh/do-not-disrupt": "true"},
    "allowedKeys": ["center", "kueue.x-k8s.io/*"],
}


async def test_labels_and_annotations_reach_the_cluster_and_its_pods(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, tmp_path: Path
):
    settings = {"GRPO_JOB_DEFAULTS": json.dumps(DEFAULTS)}
    labels = {"center": "rl", "kueue.x-k8s.io/priority-class": "high"}
    async with running_operator(
        cluster.kubeconfig, jobs.namespace, ray, tmp_path / "log", **settings
    ):
        await start(jobs, ray, labels=labels)
    (ray_cluster,) = await jobs.clusters()
    assert labels.items() <= ray_cluster["metadata"]["labels"].items()
    for pod in await jobs.pods():
        metadata = pod["metadata"]
        assert {"center": "rl", "owner": "platform"}.items() <= metadata["labels"].items()
        assert metadata["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
        assert "kueue.x-k8s.io/priority-class" not in metadata["labels"]


async def test_a_key_that_the_administrator_does_not_allow_starts_nothing(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, tmp_path: Path
):
    settings = {"GRPO_JOB_DEFAULTS": json.dumps(DEFAULTS)}
    async with running_operator(
        cluster.kubeconfig, jobs.namespace, ray, tmp_path / "log", **settings
    ):
        await jobs.create(manifest(labels={"team": "rl"}))
        refused = await jobs.until(
            lambda job: condition_of(job, "Ready")["reason"] == "KeyNotAllowed"
        )
    message = condition_of(refused, "ClusterReady")["message"]
    assert message.startswith("spec.labels: Invalid value: 'team': must be one of")
    assert await jobs.clusters() == []
    claims = await client.CoreV1Api(jobs.api).list_namespaced_persistent_volume_claim(
        jobs.namespace
    )
    assert claims.items == []


async def test_a_cluster_that_kueue_queued_by_itself_is_not_scaled(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    """As with Kueue's LocalQueueDefaulting: the spec names no queue, the RayCluster has one."""
    head = await start(jobs, ray)
    (ray_cluster,) = await jobs.clusters()
    name = ray_cluster["metadata"]["name"]
    custom = client.CustomObjectsApi(jobs.api)
    where = (*CLUSTERS[:2], jobs.namespace, CLUSTERS[2], name)

    async def label(value: str | None) -> None:
        body = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": value}}}
        await custom.patch_namespaced_custom_object(*where, body, _content_type=MERGE_PATCH)

    await label("default")
    await jobs.patch({"producers": {"replicas": 4}})
    await jobs.until(lambda job: job["status"]["observedGeneration"] == 2)
    head.report(1)
    found = await jobs.until(lambda job: job["status"]["progress"]["step"] == 1)
    assert found["status"]["workers"]["producersDesired"] == 2
    await label(None)
    await jobs.until(lambda job: job["status"]["workers"]["producersReady"] == 4)


async def test_a_job_of_another_controller_is_left_alone(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    other = await jobs.create(manifest("other", managedBy="example.com/controller"))
    await start(jobs, ray, managedBy="grpo-operator.io/grpo-operator")
    found = await jobs.get("other")
    assert found["metadata"]["resourceVersion"] == other["metadata"]["resourceVersion"]
    assert len(await jobs.clusters()) == 1
    assert {event["involvedObject"]["name"] for event in await jobs.events()} == {"job"}
    assert await operator.get("/healthz") == (200, "ok")
    _, metrics = await operator.get("/metrics")
    assert 'grpo_operator_jobs{phase="Pending"} 1.0' not in metrics


async def test_the_controller_of_a_job_cannot_be_changed(jobs: Jobs):
    await jobs.create(manifest(managedBy="example.com/controller"))
    with pytest.raises(client.ApiException, match=r"spec\.managedBy is immutable"):
        await jobs.patch({"managedBy": None})


async def test_a_second_release_ignores_the_namespace_of_the_first(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, tmp_path: Path
):
    def release(name: str):
        log = tmp_path / f"{name}.log"
        return running_operator(cluster.kubeconfig, jobs.namespace, ray, log, GRPO_LEASE_NAME=name)

    async with release("first"):
        head = await start(jobs, ray)
        async with release("second") as second:
            refusal = f'refused_namespaces{{job_namespace="{jobs.namespace}"}} 1.0'
            await second.until_metric(refusal, timeout=30)
            await second.until_ready()
            await jobs.create(manifest("next"))
            await jobs.until_phase("Running", "next")
            head.end(0)
            await jobs.until_phase("Succeeded")
    lease = await client.CoordinationV1Api(jobs.api).read_namespaced_lease(
        "grpojobs.grpo-operator.io", jobs.namespace
    )
    assert lease.spec.holder_identity == f"{jobs.namespace}/first"
    assert lease.spec.lease_transitions == 1
    assert f"the release {jobs.namespace}/first serves it" in (tmp_path / "second.log").read_text()
    created = [event for event in await jobs.events() if event["reason"] == "Creating"]
    assert sorted(event["involvedObject"]["name"] for event in created) == ["job", "next"]
    assert head.attempts == [1]
