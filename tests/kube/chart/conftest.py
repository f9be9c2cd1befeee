"""A cluster for each file of these tests, since there is one definition of GRPOJob in a cluster."""

from collections.abc import AsyncIterator, Iterator

import pytest
from kubernetes.aio import client

from kube.chart.releases import DEFINITION, Release, definition, until_definition
from kube.harness import Cluster, running_cluster


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


@pytest.fixture
def release(cluster: Cluster, namespace: str) -> Release:
    """A release that is not installed yet, in the test's namespace."""
    return Release(cluster, namespace)
