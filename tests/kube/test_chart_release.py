"""The chart on a real API server: a cluster of its own, since there is one definition of GRPOJob.

Aspects: a release becomes ready; upgrades with a new definition; what outlives a release; releases
side by side; the operator and users under the rights that the chart gives them; Pod Security;
the self-test.
"""

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from kubernetes.aio import client, config

from kube.accounts import ServiceAccount
from kube.fake_ray import FakeRay
from kube.harness import Cluster, Object, is_ready, running_cluster, until
from kube.operator_harness import GROUP, PLURAL, Jobs, manifest, running_operator, start
from support.helm_chart import CHART, HelmError, helm, settings

DEFINITION = f"{PLURAL}.{GROUP}"
RAY_CLUSTERS = "rayclusters.ray.io"
DEPLOYMENT = "release-grpo-operator"
BESIDE_ANOTHER: Object = {"crds.install": False, "rbac.userRoles": False}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("chart")) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
async def definition_removed(api: client.ApiClient) -> AsyncIterator[None]:
    """After each test, since a release of another name would not take it over."""
    yield
    extensions = client.ApiextensionsV1Api(api)
    if await definition(api) is not None:
        await extensions.delete_custom_resource_definition(DEFINITION)
    await until_definition(api, lambda found: not found)


@dataclass(frozen=True)
class Release:
    """A release of the chart."""

    cluster: Cluster
    namespace: str
    name: str = "release"

    def helm(self, command: str, *arguments: str | Path) -> str:
        where = ("--namespace", self.namespace, "--wait", "--timeout", "60s")
        return helm(command, self.name, *arguments, *where, kubeconfig=self.cluster.kubeconfig)

    @contextlib.contextmanager
    def installed(self, values: Object | None = None) -> Iterator["Release"]:
        try:
            self.helm("install", CHART, *settings(values or {}))
            yield self
        finally:
            self.helm("uninstall", "--ignore-not-found")


@pytest.fixture
def release(cluster: Cluster, namespace: str) -> Release:
    """A release that is not installed yet, in the test's namespace."""
    return Release(cluster, namespace)


async def definition(api: client.ApiClient, name: str = DEFINITION) -> Object | None:
    extensions = client.ApiextensionsV1Api(api)
    found = await extensions.list_custom_resource_definition(field_selector=f"metadata.name={name}")
    items: list[Object] = api.sanitize_for_serialization(found)["items"]
    return items[0] if items else None


async def until_definition(api, holds):
    listing = client.ApiextensionsV1Api(api).list_custom_resource_definition
    await until(holds, listing, field_selector=f"metadata.name={DEFINITION}")


async def kubeconfig_of(api: client.ApiClient, release: Release, name: str) -> Path:
    """With the rights of a service account of the release."""
    account = ServiceAccount(api, release.namespace, name)
    cluster = release.cluster
    return account.kubeconfig(cluster.kubeconfig, cluster.state, await account.token())


async def may(api: client.ApiClient, user: str, namespace: str, verb: str, resource: str) -> bool:
    """What the API server would say to a user."""
    attributes = {"group": GROUP, "resource": resource, "verb": verb, "namespace": namespace}
    review = await client.AuthorizationV1Api(api).create_subject_access_review(
        {"spec": {"user": user, "resourceAttributes": attributes}}
    )
    return bool(review.status.allowed)


async def test_a_release_becomes_ready_on_two_nodes(api: client.ApiClient, release: Release):
    with release.installed():
        pods = await client.CoreV1Api(api).list_namespaced_pod(release.namespace)
        pods = api.sanitize_for_serialization(pods)["items"]
        assert all(is_ready(pod) for pod in pods)
        assert len({pod["spec"]["nodeName"] for pod in pods}) == len(pods) == 2


async def test_the_notes_say_what_is_served_and_that_nobody_may_scrape(release: Release):
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


async def environment(api: client.ApiClient, release: Release) -> dict[str, str]:
    """The operator's, as its pods have it, but for what only works inside a cluster."""
    found = await client.AppsV1Api(api).read_namespaced_deployment(DEPLOYMENT, release.namespace)
    (container,) = found.spec.template.spec.containers
    outside = ("GRPO_HEAD_URL_TEMPLATE", "GRPO_LISTEN_PORT")
    variables = {v.name: v.value or "" for v in container.env if v.name not in outside}
    return variables | {"POD_NAMESPACE": release.namespace, "POD_NAME": "pod"}


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
async def test_the_clusters_roles_for_users_know_jobs(
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
    """Exit code and output of what `helm test` runs, with its service account."""
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
        ({"crds.install": False}, "does not know GRPOJob: install crds/grpojobs.yaml"),
        ({"replicas": 0}, f"see `kubectl --namespace {{}} logs deployment/{DEPLOYMENT}`"),
    ],
)
async def test_the_self_test_says_what_is_missing(
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
                while code == 0:  # nothing tells when the API server goes by the new schema
                    code, output = await selftest(api, release)
        finally:
            await patch({"op": "add", "value": groups["resources"]})
    assert "KubeRay 1.5 or newer is needed" in output
    assert "resources" in output
