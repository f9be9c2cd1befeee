"""One test cluster for the session, and a namespace for each test."""

import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.aio import client, config

from kube.api_proxy import ApiProxy
from kube.fake_ray import FakeRay
from kube.harness import Cluster, create_nodes, running_cluster, until
from kube.operator_harness import Jobs, Operator, install_definition, running_operator
from kube.plugin import Plugin
from kube.relay import Relay

_CLUSTER = pytest.StashKey[Cluster]()


@pytest.fixture(scope="session")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Cluster]:
    """Kubernetes and KubeRay with four fake nodes of eight accelerators, from its first use on."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        pytestconfig.stash[_CLUSTER] = cluster
        yield cluster
        del pytestconfig.stash[_CLUSTER]


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[client.ApiClient]:
    """A client with all rights."""
    async with await config.new_client_from_config(str(cluster.kubeconfig)) as api:
        # A definition that is established may still be refused for a second: 429, with Retry-After.
        api.configuration.client_go_retries = True
        yield api


@pytest.fixture
async def namespace(api: client.ApiClient) -> AsyncIterator[str]:
    """The name of a new namespace in which pods can be created."""
    core = client.CoreV1Api(api)
    name = f"test-{uuid.uuid4().hex[:8]}"
    await core.create_namespace({"metadata": {"name": name}})
    await until(lambda accounts: len(accounts) == 1, core.list_namespaced_service_account, name)
    yield name
    try:
        await core.delete_namespace(name)
    except client.ApiException as error:  # a test may have deleted it
        if error.status != 404:
            raise


@pytest.fixture
async def node(api: client.ApiClient) -> AsyncIterator[str]:
    """The name of a node for this test alone; its label `pool` has that name as its value."""
    name = f"node-{uuid.uuid4().hex[:8]}"
    await create_nodes(api, [name], pool=name)
    yield name
    await client.CoreV1Api(api).delete_node(name)


@pytest.fixture
async def jobs(api: client.ApiClient, namespace: str) -> Jobs:
    """The jobs of the test's own namespace."""
    await install_definition(api)
    return Jobs(api, namespace)


@pytest.fixture
async def ray() -> AsyncIterator[FakeRay]:
    """Replaces the Ray and the driver of every head."""
    async with FakeRay.serve() as ray:
        yield ray


@pytest.fixture
async def operator(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, tmp_path: Path
) -> AsyncIterator[Operator]:
    """An operator for the test's own namespace."""
    log = tmp_path / "operator.log"
    async with running_operator(cluster.kubeconfig, jobs.namespace, ray, log) as operator:
        yield operator
    print(log.read_text()[-8000:])


@pytest.fixture
async def proxy(cluster: Cluster) -> AsyncIterator[ApiProxy]:
    """A proxy before the API server, which breaks the calls that a test chooses."""
    async with ApiProxy.before(cluster.kubeconfig) as proxy:
        yield proxy


@pytest.fixture
async def relay(cluster: Cluster) -> AsyncIterator[Relay]:
    """A network before the API server, for a test to cut."""
    async with Relay.before(cluster.kubeconfig) as relay:
        yield relay


@pytest.fixture
def grpo(cluster: Cluster, jobs: Jobs) -> Plugin:
    """`kubectl grpo` in the test's own namespace, with all rights."""
    return Plugin(cluster.kubeconfig, jobs.namespace)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Shows what the cluster's components said last beside a failure."""
    report = yield
    cluster = item.config.stash.get(_CLUSTER, None)
    if report.failed and cluster is not None:
        report.sections.append(("Cluster logs", cluster.log_tails()))
    return report
