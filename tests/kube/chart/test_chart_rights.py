"""The chart on a real API server: the rights that it grants.

Aspects: the operator, with a job; the policy of a job's pods; Pod Security; users; the self-test.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from kubernetes.aio import client, config

from kube.chart.releases import (
    DEPLOYMENT,
    Release,
    definition,
    environment,
    kubeconfig_of,
    may,
)
from kube.fake_ray import FakeRay
from kube.harness import Object, running_cluster, until
from kube.operator_harness import PLURAL, Jobs, running_operator, start
from support.helm_chart import CHART, helm

RAY_CLUSTERS = "rayclusters.ray.io"


@pytest.mark.parametrize("everywhere", [True, False], ids=["cluster", "namespaces"])
async def test_the_operator_runs_a_job_with_the_rights_of_the_release(
    everywhere: bool, api: client.ApiClient, release: Release, ray: FakeRay, tmp_path: Path
):
    jobs = Jobs(api, release.namespace)
    with release.installed({"namespaces": [] if everywhere else [release.namespace]}):
        kubeconfig = await kubeconfig_of(api, release, DEPLOYMENT)
        variables = await environment(api, release)
        async with running_operator(kubeconfig, "", ray, tmp_path / "log", **variables) as operator:
            head = await start(jobs, ray)
            head.end(0)
            await jobs.until_phase("Succeeded")
            await jobs.until_gone(("ray.io", "v1", "rayclusters"))
            assert await operator.get("/readyz") == (200, "ok")
        lease = await client.CoordinationV1Api(api).read_namespaced_lease(
            DEPLOYMENT, release.namespace
        )
        assert lease.spec.lease_transitions == 1
        assert "forbidden" not in (tmp_path / "log").read_text().lower()


async def test_a_jobs_pods_are_behind_a_policy_of_their_own_before_they_exist(
    api: client.ApiClient, release: Release, ray: FakeRay, tmp_path: Path
):
    listing = client.NetworkingV1Api(api).list_namespaced_network_policy
    with release.installed():
        kubeconfig = await kubeconfig_of(api, release, DEPLOYMENT)
        variables = await environment(api, release)
        async with running_operator(kubeconfig, "", ray, tmp_path / "log", **variables):
            jobs = Jobs(api, release.namespace)
            await start(jobs, ray)
            pods = [p for p in await jobs.pods() if "ray.io/cluster" in p["metadata"]["labels"]]
            (policy,) = await until(
                lambda items: len(items) == 1,
                listing,
                release.namespace,
                label_selector="grpo-operator.io/job=job",
            )
    (selected,) = policy["spec"]["podSelector"]["matchLabels"].items()
    assert len(pods) == 4
    assert all(selected in pod["metadata"]["labels"].items() for pod in pods)
    created = [item["metadata"]["creationTimestamp"] for item in (policy, *pods)]
    assert created[0] == min(created)


async def test_operator_and_jobs_run_in_a_restricted_namespace(
    api: client.ApiClient, release: Release, ray: FakeRay, tmp_path: Path
):
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    await client.CoreV1Api(api).patch_namespace(
        release.namespace, {"metadata": {"labels": enforce}}
    )
    with release.installed():
        kubeconfig = await kubeconfig_of(api, release, DEPLOYMENT)
        variables = await environment(api, release)
        async with running_operator(kubeconfig, "", ray, tmp_path / "log", **variables):
            await start(Jobs(api, release.namespace), ray)


@pytest.mark.parametrize(("role", "create"), [("view", False), ("edit", True), ("admin", True)])
async def test_the_cluster_roles_for_users_include_jobs(
    role: str, create: bool, api: client.ApiClient, release: Release
):
    rbac = client.RbacAuthorizationV1Api(api)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role}
    await rbac.create_namespaced_role_binding(
        release.namespace,
        {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]},
    )
    wanted = {"get", "create"} if create else {"get"}
    with release.installed():
        await until(
            lambda roles: (
                wanted
                <= {
                    verb
                    for rule in roles[0]["rules"]
                    if PLURAL in rule.get("resources", ())
                    for verb in rule["verbs"]
                }
            ),
            rbac.list_cluster_role,
            field_selector=f"metadata.name={role}",
        )
        assert await may(api, role, release.namespace, "create", PLURAL) == create
        assert await may(api, role, release.namespace, "get", PLURAL)


async def selftest(api: client.ApiClient, release: Release) -> tuple[int | None, str]:
    """Exit code and output of what `helm test` runs, with the service account that it creates."""
    with release.test_account():
        return await _selftest(api, release)


async def _selftest(api: client.ApiClient, release: Release) -> tuple[int | None, str]:
    kubeconfig = await kubeconfig_of(api, release, f"{DEPLOYMENT}-test")
    variables = {
        "PATH": os.environ["PATH"],
        "KUBECONFIG": str(kubeconfig),
        "POD_NAMESPACE": release.namespace,
        "GRPO_DEPLOYMENT": DEPLOYMENT,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "grpo_operator.selftest"),
        env=variables,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, output.decode()


async def test_the_self_test_passes_and_leaves_nothing(api: client.ApiClient, release: Release):
    with release.installed():
        code, output = await selftest(api, release)
        jobs = Jobs(api, release.namespace)
        assert (code, output.count("ok "), output.count("FAILED")) == (0, 4, 0)
        assert await jobs.clusters() == []
        await jobs.until_gone()


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"crds.install": False}, "does not serve GRPOJob: install crds/grpojobs.yaml"),
        ({"replicas": 0}, f"see `kubectl --namespace {{}} logs deployment/{DEPLOYMENT}`"),
    ],
)
async def test_the_self_test_reports_what_is_missing(
    values: Object, fault: str, api: client.ApiClient, release: Release
):
    with release.installed(values):
        code, output = await selftest(api, release)
    assert code == 1
    assert fault.format(release.namespace) in output


async def test_without_kuberay_the_notes_and_the_self_test_ask_for_it(tmp_path: Path):
    with running_cluster(tmp_path, "--bare") as bare:
        release = Release(bare, "default")
        where = ("--namespace", release.namespace)
        notes = helm("install", release.name, CHART, *where, kubeconfig=bare.kubeconfig)
        async with await config.new_client_from_config(str(bare.kubeconfig)) as api:
            code, output = await selftest(api, release)
    assert "KubeRay is missing" in notes
    assert code == 1
    assert "install KubeRay 1.5 or newer" in output


async def test_the_self_test_finds_a_kuberay_that_is_too_old(
    api: client.ApiClient, release: Release
):
    extensions = client.ApiextensionsV1Api(api)
    found = await definition(api, RAY_CLUSTERS)
    assert found is not None
    (number,) = [i for i, v in enumerate(found["spec"]["versions"]) if v["name"] == "v1"]
    field = "spec/properties/workerGroupSpecs/items/properties/resources"
    path = f"/spec/versions/{number}/schema/openAPIV3Schema/properties/{field}"
    schema = found["spec"]["versions"][number]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    groups = schema["properties"]["workerGroupSpecs"]["items"]["properties"]

    async def patch(operation: Object) -> None:
        await extensions.patch_custom_resource_definition(
            RAY_CLUSTERS,
            [operation | {"path": path}],
            _content_type="application/json-patch+json",
        )

    with release.installed():
        await patch({"op": "remove"})
        try:
            async with asyncio.timeout(30):
                code, output = 0, ""
                while code == 0:  # no event shows when the API server uses the new schema
                    code, output = await selftest(api, release)
        finally:
            await patch({"op": "add", "value": groups["resources"]})
    assert "KubeRay 1.5 or newer is needed" in output
    assert "resources" in output
