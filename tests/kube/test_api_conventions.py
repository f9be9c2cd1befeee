"""GRPOJobs as other Kubernetes tools read and write them, on a real API server.

Aspects: kstatus and `kubectl wait`; descriptions; required fields of conditions; server-side apply;
the scale subresource, by hand and by a HorizontalPodAutoscaler.
"""

import json

import pytest
import yaml
from kubernetes.aio import client

from grpo_trainer.spec import GRPOJobSpec
from kube.fake_ray import FakeRay
from kube.harness import Cluster, Object, kubectl, until
from kube.operator_harness import (
    CPU_ONLY,
    GROUP,
    MERGE_PATCH,
    PLURAL,
    VERSION,
    Jobs,
    Operator,
    condition_of,
    manifest,
    start,
)
from support.kstatus import CURRENT, FAILED, IN_PROGRESS, kstatus

JOB = (GROUP, VERSION, PLURAL)


async def test_a_job_is_in_progress_from_its_creation(jobs: Jobs):
    created = await jobs.create(manifest())
    found = await jobs.get()
    assert kstatus(found) == IN_PROGRESS
    assert found["status"]["phase"] == "Pending"
    assert found["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


async def test_a_job_is_current_while_it_runs_and_after_its_end(
    operator: Operator, jobs: Jobs, ray: FakeRay, cluster: Cluster
):
    head = await start(jobs, ray)
    where = ("grpo/job", "-n", jobs.namespace, "--timeout=20s")
    waited = kubectl(cluster, "wait", "--for=condition=Ready", *where)
    assert waited.returncode == 0, waited.stderr
    assert kstatus(await jobs.get()) == CURRENT
    await jobs.patch({"backoffLimit": 5})
    await jobs.until(lambda job: kstatus(job) == CURRENT)
    head.end(0)
    assert kstatus(await jobs.until_phase("Succeeded")) == CURRENT
    await jobs.patch({"backoffLimit": 6})
    ended = await jobs.until(lambda job: job["status"]["observedGeneration"] == 3)
    assert kstatus(ended) == CURRENT


async def test_a_job_with_bad_input_has_failed(operator: Operator, jobs: Jobs, ray: FakeRay):
    head = await start(jobs, ray)
    head.end(64)
    failed = await jobs.until_phase("Failed")
    assert kstatus(failed) == FAILED
    assert condition_of(failed, "Stalled")["reason"] == "BadInput"


@pytest.mark.parametrize("missing", ["reason", "lastTransitionTime"])
async def test_a_condition_needs_a_reason_and_a_time(jobs: Jobs, missing: str):
    await jobs.create(manifest())
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Running",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    del ready[missing]
    with pytest.raises(client.ApiException, match=f"{missing}: Required value"):
        await client.CustomObjectsApi(jobs.api).patch_namespaced_custom_object_status(
            *JOB[:2], jobs.namespace, PLURAL, "job", {"status": {"conditions": [ready]}},
            _content_type=MERGE_PATCH,
        )  # fmt: skip


async def test_kubectl_explains_every_group(cluster: Cluster, jobs: Jobs):
    groups = [f.alias for f in GRPOJobSpec.model_fields.values() if hasattr(f.annotation, "plain")]
    assert len(groups) > 10
    for path in ("", "spec", "status.conditions", *(f"spec.{name}" for name in groups)):
        shown = kubectl(cluster, "explain", f"grpojob.{path}".rstrip("."))
        assert "DESCRIPTION" in shown.stdout
        assert "<empty>" not in shown.stdout, path


def apply(cluster: Cluster, jobs: Jobs, body: Object, *flags: str) -> str:
    done = kubectl(
        cluster, "apply", *flags, "-n", jobs.namespace, "-f", "-", stdin=yaml.safe_dump(body)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_applying_a_running_job_again_changes_nothing(
    operator: Operator, jobs: Jobs, ray: FakeRay, cluster: Cluster
):
    """Fields with defaults, lists, quantities and a pod template are all in the manifest."""
    producers = {
        **CPU_ONLY,
        "resources": {"requests": {"cpu": 1, "memory": "0.5Gi"}},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "podTemplate": {"spec": {"hostIPC": False, "nodeSelector": {}}},
    }
    body = manifest(
        producers=producers, env=[{"name": "A", "value": "1"}], algorithm={"learningRate": 1e-6}
    )
    flags = ("--server-side", "--field-manager=flux")
    apply(cluster, jobs, body, *flags)
    await jobs.until_phase("Running")
    (await ray.only_head()).report(1)
    before = await jobs.until(lambda job: job["status"].get("progress", {}).get("step") == 1)
    apply(cluster, jobs, body, *flags)
    after = await jobs.get()
    assert after["metadata"]["generation"] == before["metadata"]["generation"] == 1
    assert after["spec"] == before["spec"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    difference = kubectl(
        cluster, "diff", *flags, "-n", jobs.namespace, "-f", "-", stdin=yaml.safe_dump(body)
    )
    assert (difference.returncode, difference.stdout) == (0, "")


async def test_an_applier_owns_the_spec_that_it_applied_and_no_default_or_status(
    operator: Operator, jobs: Jobs, ray: FakeRay, cluster: Cluster
):
    body = manifest()
    apply(cluster, jobs, body, "--server-side", "--field-manager=flux")
    await jobs.until_phase("Running")
    found = await jobs.get()
    owned = {
        entry["manager"]: entry["fieldsV1"]
        for entry in found["metadata"]["managedFields"]
        if not entry.get("subresource")
    }
    assert set(owned) == {"flux"}
    assert set(owned["flux"]) == {"f:spec"}
    assert set(owned["flux"]["f:spec"]) == {f"f:{name}" for name in body["spec"]}


async def scale(jobs: Jobs, replicas: int | None = None) -> Object:
    custom = client.CustomObjectsApi(jobs.api)
    name = (*JOB[:2], jobs.namespace, PLURAL, "job")
    if replicas is None:
        return await custom.get_namespaced_custom_object_scale(*name)
    return await custom.patch_namespaced_custom_object_scale(
        *name, {"spec": {"replicas": replicas}}, _content_type=MERGE_PATCH
    )


async def test_the_scale_endpoint_obeys_the_rules_of_the_spec(jobs: Jobs):
    await jobs.create(manifest(producers={**CPU_ONLY, "replicas": 3, "minAvailable": 2}))
    assert (await scale(jobs))["spec"]["replicas"] == 3
    with pytest.raises(client.ApiException, match="minAvailable"):
        await scale(jobs, 1)
    assert (await scale(jobs, 2))["spec"]["replicas"] == 2


async def test_a_horizontal_pod_autoscaler_scales_the_producers(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    """Below minReplicas the controller needs no metrics, of which this cluster has none."""
    head = await start(jobs, ray)
    target = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GRPOJob", "name": "job"}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "job"},
        "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 4},
    }
    scaling = client.AutoscalingV2Api(jobs.api)
    await scaling.create_namespaced_horizontal_pod_autoscaler(jobs.namespace, autoscaler)
    await jobs.until(lambda job: job["status"]["workers"]["producersReady"] == 3, timeout=60)
    (found,) = await until(
        lambda items: (
            items[0].get("status", {}).get("currentReplicas") == 3
            and items[0]["status"]["desiredReplicas"] == 3
        ),
        scaling.list_namespaced_horizontal_pod_autoscaler,
        jobs.namespace,
        timeout=60,
    )
    states = {c["type"]: c["status"] for c in found["status"]["conditions"]}
    assert states["AbleToScale"] == "True"
    shown = await scale(jobs)
    assert (shown["spec"]["replicas"], shown["status"]["replicas"]) == (3, 3)
    selected = await client.CoreV1Api(jobs.api).list_namespaced_pod(
        jobs.namespace, label_selector=shown["status"]["selector"]
    )
    assert len(selected.items) == 3
    assert head.attempts == [1]


async def test_a_job_can_be_written_and_read_in_both_versions(cluster: Cluster, jobs: Jobs):
    body = manifest()
    apply(cluster, jobs, body, "--server-side", "--field-manager=flux")
    first = await jobs.get()
    beta = body | {"apiVersion": f"{GROUP}/v1beta1"}
    apply(cluster, jobs, beta, "--server-side", "--field-manager=flux")
    second = await jobs.get()
    assert second["metadata"]["generation"] == first["metadata"]["generation"] == 1
    assert second["spec"] == first["spec"]
    shown = kubectl(cluster, "get", "grpo", "job", "-n", jobs.namespace, "-o", "json")
    preferred = json.loads(shown.stdout)
    assert preferred["apiVersion"] == f"{GROUP}/v1beta1"
    assert preferred["spec"] == first["spec"]


@pytest.mark.parametrize("version", [VERSION, "v1beta1"])
async def test_both_versions_refuse_the_same(cluster: Cluster, jobs: Jobs, version: str):
    body = manifest(producers={**CPU_ONLY, "minAvailable": 3})
    text = yaml.safe_dump(body | {"apiVersion": f"{GROUP}/{version}"})
    refused = kubectl(cluster, "create", "-n", jobs.namespace, "-f", "-", stdin=text)
    assert "spec.producers.minAvailable" in refused.stderr
    assert "3: must be at most replicas (2)" in refused.stderr
