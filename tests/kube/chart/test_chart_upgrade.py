"""An upgrade from the previous release below a running job, on a real API server with real KubeRay.

`tests/kube/releases/0.1.0.tar.xz` has the operator and the chart of that release, as `git archive`
of its commit wrote them, without dashboards and alerts. So its own operator starts the job, below
its own definition.
"""

import copy
import tarfile
from pathlib import Path

import pytest
from kubernetes.aio import client

from kube.chart.releases import DEPLOYMENT, Release, definition, environment, kubeconfig_of
from kube.fake_ray import FakeRay
from kube.harness import Object
from kube.operator_harness import GROUP, PLURAL, Jobs, condition_of, running_operator, start
from support.helm_chart import CHART
from support.kstatus import CURRENT, kstatus

ARCHIVE = Path(__file__).resolve().parents[1] / "releases" / "0.1.0.tar.xz"
IMAGES = {"jobImages.trainer.tag": "one", "jobImages.vllm.tag": "one"}


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the previous release."""
    directory = tmp_path_factory.mktemp("previous")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return directory


def settled(item: Object) -> Object:
    """An object without what may change while nothing is done to it."""
    kept = copy.deepcopy(item)
    for name in ("managedFields", "resourceVersion"):
        kept["metadata"].pop(name, None)
    kept.pop("status", None)
    return kept


def within(part: object, whole: object) -> bool:
    """Whether all that one value says is in another, which may have more fields."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and within(value, whole[key]) for key, value in part.items())
    return part == whole


async def children(jobs: Jobs) -> dict[str, Object]:
    """The job's cluster, pods, claim, ConfigMaps and Secrets, by kind and name."""
    core = client.CoreV1Api(jobs.api)
    found = {f"cluster/{c['metadata']['name']}": c for c in await jobs.clusters()}
    found |= {f"pod/{pod['metadata']['name']}": pod for pod in await jobs.pods("")}
    listings = {
        "claim": core.list_namespaced_persistent_volume_claim,
        "config": core.list_namespaced_config_map,
        "secret": core.list_namespaced_secret,
    }
    for kind, listing in listings.items():
        listed = await listing(jobs.namespace, label_selector=f"{GROUP}/job=job")
        for item in jobs.api.sanitize_for_serialization(listed)["items"]:
            found[f"{kind}/{item['metadata']['name']}"] = item
    owned = (f"{GROUP}/job", "job")
    return {
        name: settled(item)
        for name, item in found.items()
        if owned in item["metadata"]["labels"].items()
    }


async def test_an_upgrade_of_chart_and_operator_leaves_a_running_job_untouched(
    api: client.ApiClient, release: Release, ray: FakeRay, previous: Path, tmp_path: Path
):
    jobs = Jobs(api, release.namespace)
    values = {"namespaces": [release.namespace], **IMAGES}
    with release.installed(values, previous / "helm" / "grpo-operator"):
        kubeconfig = await kubeconfig_of(api, release, DEPLOYMENT)
        variables = await environment(api, release)
        path = f"{previous / 'operator'}:{previous / 'trainer'}"
        async with running_operator(
            kubeconfig, "", ray, tmp_path / "old", PYTHONPATH=path, **variables
        ):
            head = await start(jobs, ray)
            head.report(10)
            before = await jobs.until(lambda job: job["status"]["progress"]["step"] == 10)
        old = await children(jobs)
        assert len(old) >= 7
        assert "observedGeneration" in before["status"]
        assert condition_of(before, "Ready")["status"] == ""

        release.helm("upgrade", CHART, "--reset-then-reuse-values")
        variables = await environment(api, release)
        async with running_operator(kubeconfig, "", ray, tmp_path / "new", **variables) as operator:
            await operator.until_ready()
            head.report(11)
            after = await jobs.until(lambda job: job["status"]["progress"]["step"] == 11)
            assert within(before["spec"], after["spec"])
            assert after["metadata"]["generation"] == before["metadata"]["generation"]
            assert (after["status"]["phase"], after["status"]["attempt"]) == ("Running", 1)
            assert after["status"]["startTime"] == before["status"]["startTime"]
            assert kstatus(after) == CURRENT
            new = await children(jobs)
            assert {name: new[name] for name in old} == old
            assert (head.attempts, head.stops, head.asked) == ([1], [], [])
            beta = await client.CustomObjectsApi(api).get_namespaced_custom_object(
                GROUP, "v1beta1", jobs.namespace, PLURAL, "job"
            )
            assert beta["apiVersion"] == f"{GROUP}/v1beta1"
            assert (beta["spec"], beta["metadata"]["uid"]) == (
                after["spec"],
                after["metadata"]["uid"],
            )
            head.end(0)
            await jobs.until_phase("Succeeded")
    found = await definition(api)
    assert found is not None
    assert found["status"]["storedVersions"] == ["v1alpha1"]
