"""The chart on a real API server: installing, upgrading and uninstalling a release.

Aspects: readiness; notes; a drain; upgrades with a new CRD; objects that remain; several releases.
"""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from kubernetes.aio import client

from kube.chart.releases import DEPLOYMENT, Release, definition, may, until_definition
from kube.harness import Object, is_ready, until
from kube.operator_harness import PLURAL, Jobs, manifest
from support.helm_chart import CHART, HelmError, settings

BESIDE_ANOTHER: Object = {"crds.install": False, "rbac.userRoles": False}


async def test_a_release_becomes_ready_on_two_nodes(api: client.ApiClient, release: Release):
    with release.installed():
        pods = await client.CoreV1Api(api).list_namespaced_pod(release.namespace)
        pods = api.sanitize_for_serialization(pods)["items"]
        assert all(is_ready(pod) for pod in pods)
        assert len({pod["spec"]["nodeName"] for pod in pods}) == len(pods) == 2


async def test_the_notes_name_the_served_namespaces_and_that_no_scraper_is_allowed(
    release: Release,
):
    values = {"namespaces": [release.namespace], "networkPolicy.monitoring": []}
    notes = release.helm("install", CHART, "--dry-run", *settings(values))
    assert f"in the namespaces {release.namespace}" in notes
    assert "no Prometheus can scrape" in notes
    assert "KubeRay is missing" not in notes


async def test_a_drain_takes_one_replica_at_a_time(api: client.ApiClient, release: Release):
    with release.installed():
        listing = client.PolicyV1Api(api).list_namespaced_pod_disruption_budget
        (budget,) = await until(
            lambda items: items[0].get("status", {}).get("currentHealthy") == 2,
            listing,
            release.namespace,
        )
        assert budget["status"]["disruptionsAllowed"] == 1


@pytest.fixture
def next_chart(tmp_path: Path) -> Path:
    """The chart of a later version, in which a job can have a nickname."""
    chart = tmp_path / "grpo-operator"
    shutil.copytree(CHART, chart)
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about | {"version": "99.0.0"}))
    file = chart / "files" / "grpojobs.yaml"
    content = yaml.safe_load(file.read_text())
    schema = content["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["nickname"] = {"type": "string"}
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return chart


async def test_an_upgrade_brings_the_new_definition_and_keeps_the_jobs(
    api: client.ApiClient, release: Release, next_chart: Path
):
    jobs = Jobs(api, release.namespace)
    with release.installed():
        before = await jobs.create(manifest())
        release.helm("upgrade", next_chart)
        await jobs.patch({"nickname": "speedy"})
        after = await jobs.until(lambda job: "nickname" in job["spec"])
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"] | {"nickname": "speedy"}


async def test_the_definition_and_the_jobs_outlive_the_release_and_are_taken_over_by_the_next(
    api: client.ApiClient, release: Release
):
    jobs = Jobs(api, release.namespace)
    with release.installed():
        before = await jobs.create(manifest())
    apps = await client.AppsV1Api(api).list_namespaced_deployment(release.namespace)
    assert apps.items == []
    with release.installed():
        assert await jobs.get() == before


async def test_the_definition_goes_with_the_release_if_so_asked(
    api: client.ApiClient, release: Release
):
    with release.installed({"crds.keep": False}):
        assert await definition(api) is not None
    await until_definition(api, lambda found: not found)


@pytest.fixture
async def lab(api: client.ApiClient, namespace: str) -> AsyncIterator[str]:
    """A second namespace."""
    core, name = client.CoreV1Api(api), f"{namespace}-lab"
    await core.create_namespace({"metadata": {"name": name}})
    yield name
    await core.delete_namespace(name)


async def test_two_releases_serve_a_namespace_each(
    api: client.ApiClient, release: Release, lab: str
):
    other = Release(release.cluster, lab, "other")
    with (
        release.installed({"namespaces": [release.namespace]}),
        other.installed({"namespaces": [lab], **BESIDE_ANOTHER}),
    ):
        accounts = {
            release.namespace: f"system:serviceaccount:{release.namespace}:{DEPLOYMENT}",
            lab: f"system:serviceaccount:{lab}:other-grpo-operator",
        }
        rights = {
            (own, where): await may(api, user, where, "list", PLURAL)
            for own, user in accounts.items()
            for where in accounts
        }
        assert rights == {(own, where): own == where for own, where in rights}


async def test_a_second_release_does_not_take_the_definition_away(release: Release, lab: str):
    other = Release(release.cluster, lab, "other")
    with release.installed(), pytest.raises(HelmError, match="CustomResourceDefinition"):
        other.helm("install", CHART, *settings({"rbac.userRoles": False}))
