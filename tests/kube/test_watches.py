"""What kopf's watches of the real API server report to the operator's own event loop.

Aspects: objects that existed before, in lists of several parts; none of kopf's context.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context

import pytest

from grpo_operator.controller import watches
from grpo_operator.controller.cache import Cache, Key
from grpo_operator.metrics import Metrics
from kube.harness import Cluster
from kube.operator_harness import Jobs, manifest

Reports = asyncio.Queue[tuple[Key, dict[object, object]]]
"""Jobs that were woken, and the context variables at that moment."""


def context() -> dict[object, object]:
    return dict(copy_context().items())


@asynccontextmanager
async def watching(namespace: str) -> AsyncIterator[Reports]:
    reports: Reports = asyncio.Queue()
    watch = watches.watch(
        Cache(),
        lambda key: reports.put_nowait((key, context())),
        [namespace],
        threading.Event(),
        Metrics(),
    )
    task = asyncio.create_task(watch)
    try:
        async with asyncio.timeout(30):
            yield reports
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def kubeconfig(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    # The variable KUBECONFIG is read when the module is imported, which is long past here.
    location = "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
    monkeypatch.setattr(location, str(cluster.kubeconfig))


async def test_objects_that_existed_before_are_reported_in_parts(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(watches, "CHUNK", 2)
    names = {f"job-{number}" for number in range(5)}
    for name in names:
        await jobs.create(manifest(name))
    async with watching(jobs.namespace) as reports:
        assert {(await reports.get())[0] for _ in names} == {(jobs.namespace, n) for n in names}


async def test_reports_run_without_the_context_of_kopf(jobs: Jobs):
    """Else every timer of a job would hold the object that kopf was handling."""
    async with watching(jobs.namespace) as reports:
        await jobs.create(manifest())
        _, variables = await reports.get()
    assert variables == context()
