"""One cluster with real nodes and the installed chart for the session, a namespace for each test.

All tests share one event loop, so that a job may outlive the test that started it.
"""

import os
import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from kubernetes.aio import client, config

from e2e.deployment import Deployment, built, image_archives
from e2e.runs import STEADY, Runs, endless
from e2e.stages import Timings
from kube.harness import running_cluster, until
from kube.operator_harness import Jobs

_DEPLOYMENT = pytest.StashKey[Deployment]()
_TIMINGS = pytest.StashKey[Timings]()
_MONITORED = (
    "--set=serviceMonitor.enabled=true,serviceMonitor.interval=2s",
    "--set=podMonitor.enabled=true,podMonitor.interval=2s",
    "--set=prometheusRule.enabled=true,dashboards.enabled=true",
)
_TEST_SECONDS = 1200
"""A first test may have to unpack images of many gigabytes."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TIMINGS] = Timings()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(_TEST_SECONDS))
            if pytest_asyncio.is_async_test(item):
                item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
    # The job of the session is the last to start, or it would take the others' CPUs.
    items.sort(key=lambda item: "steady_runs" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state directory of two real nodes with all images and add-ons.

    With GRPO_E2E_STATE, the cluster that runs in that state directory; it is left running.
    """
    if running := os.environ.get("GRPO_E2E_STATE"):
        yield Path(running)
        return
    archives = image_archives(["operator", "consumer", "producer"])
    addons = ["--network-policies", "--monitoring", "--kueue"]
    options = ["--real-nodes=2", *addons, "--timeout=900", "--images", *map(str, archives)]
    directory = tmp_path_factory.mktemp("cluster")
    with running_cluster(directory, *options):
        yield directory


@pytest.fixture(scope="session")
def deployment(state: Path, pytestconfig: pytest.Config) -> Iterator[Deployment]:
    """The cluster by its tools."""
    deployment = Deployment(state, built("helm") / "helm")
    pytestconfig.stash[_DEPLOYMENT] = deployment
    yield deployment
    del pytestconfig.stash[_DEPLOYMENT]


@pytest.fixture(scope="session")
def release(deployment: Deployment) -> Deployment:
    """The same with the chart installed: monitored, and with more news of progress."""
    deployment.install("--set=statusSeconds=1", *_MONITORED)
    return deployment


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def api(deployment: Deployment) -> AsyncIterator[client.ApiClient]:
    """A client with all rights."""
    async with await config.new_client_from_config(str(deployment.kubeconfig)) as api:
        yield api


@asynccontextmanager
async def _namespace(api: client.ApiClient) -> AsyncIterator[str]:
    core = client.CoreV1Api(api)
    name = f"test-{uuid.uuid4().hex[:8]}"
    await core.create_namespace({"metadata": {"name": name}})
    await until(lambda accounts: len(accounts) == 1, core.list_namespaced_service_account, name)
    yield name
    await core.delete_namespace(name)
    # Its pods take the machine's CPUs until they are gone.
    await until(lambda pods: not pods, core.list_namespaced_pod, name, timeout=180)


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(api: client.ApiClient) -> AsyncIterator[str]:
    """The name of a namespace for one test."""
    async with _namespace(api) as name:
        yield name


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared_namespace(api: client.ApiClient) -> AsyncIterator[str]:
    """The name of a namespace for the tests of one module."""
    async with _namespace(api) as name:
        yield name


@pytest.fixture
def runs(
    release: Deployment, api: client.ApiClient, namespace: str, pytestconfig: pytest.Config
) -> Runs:
    """The jobs of the test's own namespace."""
    return Runs(release, Jobs(api, namespace), pytestconfig.stash[_TIMINGS])


@pytest.fixture(scope="module")
def shared_runs(
    release: Deployment,
    api: client.ApiClient,
    shared_namespace: str,
    pytestconfig: pytest.Config,
) -> Runs:
    """The jobs of the module's namespace."""
    return Runs(release, Jobs(api, shared_namespace), pytestconfig.stash[_TIMINGS])


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def session_namespace(api: client.ApiClient) -> AsyncIterator[str]:
    """The name of a namespace for the session."""
    async with _namespace(api) as name:
        yield name


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def steady_runs(
    release: Deployment,
    api: client.ApiClient,
    session_namespace: str,
    pytestconfig: pytest.Config,
) -> Runs:
    """The jobs of the session's namespace, of which one, STEADY, runs."""
    runs = Runs(release, Jobs(api, session_namespace), pytestconfig.stash[_TIMINGS])
    shown = {"evaluation": {"interval": 20}, "algorithm": {"klCoefficient": 0.01}}
    await runs.start(endless(STEADY, **shown))
    return runs


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Shows beside a failure what cluster, operator and driver say."""
    report = yield
    deployment = item.config.stash.get(_DEPLOYMENT, None)
    if report.failed and deployment is not None:
        fixtures = getattr(item, "funcargs", {})
        for name in ("namespace", "shared_namespace", "session_namespace"):
            if name in fixtures:
                report.sections.append((f"Account of {name}", deployment.account(fixtures[name])))
        report.sections.append(("Cluster logs", deployment.component_logs()))
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    timings = config.stash[_TIMINGS]
    if timings.stopwatches:
        terminalreporter.section("seconds since kubectl apply")
        terminalreporter.write_line(timings.table())
