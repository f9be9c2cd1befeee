"""Installing the operator's CRD, and changes of others to its objects.

Aspects: `kubectl apply` of the CRD; foreign annotations and finalizers.
"""

import json
import subprocess
from pathlib import Path

from kubernetes.aio import client

from kube.fake_ray import FakeRay
from kube.harness import Cluster
from kube.operator_harness import GROUP, MERGE_PATCH, PLURAL, VERSION, Jobs, Operator, manifest

CRD = Path(__file__).resolve().parents[2] / "crds" / "grpojobs.yaml"


def kubectl(cluster: Cluster, *arguments: str) -> str:
    command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


async def test_kubectl_applies_the_definition_again_and_again(cluster: Cluster, jobs: Jobs):
    kubectl(cluster, "apply", "-f", str(CRD))
    assert "unchanged" in kubectl(cluster, "apply", "-f", str(CRD))
    assert "serverside-applied" in kubectl(
        cluster, "apply", "--server-side", "--force-conflicts", "-f", str(CRD)
    )


async def test_what_others_write_on_a_job_is_left_as_it_is(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    last = json.dumps({"spec": {"seed": 1}, "padding": "x" * 100_000})
    annotations = {
        "kopf.zalando.org/last-handled-configuration": last,
        "another.io/kopf-managed": "yes",
    }
    finalizers = ["another.io/finalizer"]
    body = manifest()
    body["metadata"] |= {"annotations": annotations, "finalizers": finalizers}
    await jobs.create(body)
    running = await jobs.until_phase("Running")
    assert running["metadata"]["annotations"] == annotations
    assert running["metadata"]["finalizers"] == finalizers
    (await ray.only_head()).end(0)
    await jobs.until_phase("Succeeded")
    await jobs.delete()
    leaving = await jobs.until(lambda job: "deletionTimestamp" in job["metadata"])
    assert leaving["metadata"]["finalizers"] == finalizers, "not the operator's to take"
    await client.CustomObjectsApi(jobs.api).patch_namespaced_custom_object(
        GROUP, VERSION, jobs.namespace, PLURAL, "job", {"metadata": {"finalizers": None}},
        _content_type=MERGE_PATCH,
    )  # fmt: skip
    await jobs.until_gone()
