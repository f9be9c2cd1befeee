"""Faults of the API server over whole runs.

Aspects: random refusals, conflicts, lost responses and timeouts, watches that stop, KubeRay that is
not installed.
"""

import asyncio
import random
from pathlib import Path
from typing import Any

from kubernetes.aio import client, config

from kube.api_proxy import HANG_UP, NEVER_ANSWER, ApiProxy, Call
from kube.fake_ray import FakeRay
from kube.harness import Cluster, running_cluster
from kube.operator_harness import (
    CLUSTERS,
    Jobs,
    install_definition,
    manifest,
    observed,
    running_operator,
)

FAULTS = (409, 422, 429, 500, 503, HANG_UP, NEVER_ANSWER)
FAULT_SHARE, MOST_FAULTS = 0.06, 12
LOST_SHARE = 0.05
SILENCE_SECONDS = 150
"""Enough for the operator's liveness, and then its own watches, to notice a silence."""


async def test_random_failures_of_the_api_server_only_delay_jobs(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, proxy: ApiProxy, tmp_path: Path
):
    dice = random.Random(20)
    names = ["one", "two", "three"]

    def fault(call: Call) -> int | None:
        if len(proxy.refused) >= MOST_FAULTS or dice.random() >= FAULT_SHARE:
            return None
        return dice.choice(FAULTS)

    proxy.fault = fault
    proxy.loses = lambda call: call.writes and dice.random() < LOST_SHARE
    kubeconfig = proxy.kubeconfig(cluster.kubeconfig, tmp_path / "proxied")
    async with running_operator(kubeconfig, jobs.namespace, ray, tmp_path / "log") as operator:
        await asyncio.gather(*(jobs.create(manifest(name)) for name in names))
        await asyncio.gather(*(jobs.until_phase("Running", name, timeout=200) for name in names))
        for head in ray.heads.values():
            head.end(0)
        done = await asyncio.gather(
            *(jobs.until_phase("Succeeded", name, timeout=100) for name in names)
        )
        await jobs.until_gone(CLUSTERS, timeout=100)
        assert operator.process.returncode is None
    assert [job["status"]["restarts"] for job in done] == [0, 0, 0]
    assert [head.attempts for head in ray.heads.values()] == [[1], [1], [1]]
    assert proxy.answered.count((Call("create", "ray.io", "rayclusters"), 201)) == 3
    assert len(proxy.refused) >= 4, "too little went wrong"


async def test_watches_that_stop_fail_the_liveness_and_are_restarted(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, proxy: ApiProxy, tmp_path: Path
):
    kubeconfig = proxy.kubeconfig(cluster.kubeconfig, tmp_path / "proxied")
    async with running_operator(kubeconfig, jobs.namespace, ray, tmp_path / "log") as operator:
        await jobs.create(manifest("before"))
        await jobs.until(observed, "before")
        proxy.silence()
        await jobs.create(manifest("after"))
        await operator.until_health(503, timeout=SILENCE_SECONDS)
        await jobs.until_phase("Running", "after", timeout=SILENCE_SECONDS)
        await operator.until_health(200, timeout=SILENCE_SECONDS)
        assert operator.process.returncode is None


async def definition_of_clusters(api: client.ApiClient) -> dict[str, Any]:
    """KubeRay's own, as it was before it was installed."""
    extensions = client.ApiextensionsV1Api(api)
    found = await extensions.read_custom_resource_definition("rayclusters.ray.io")
    plain = api.sanitize_for_serialization(found)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": plain["metadata"]["name"]},
        "spec": plain["spec"],
    }


async def test_without_kuberay_the_operator_reports_it_and_starts_once_it_is_installed(
    api: client.ApiClient, ray: FakeRay, tmp_path: Path
):
    definition = await definition_of_clusters(api)
    log = tmp_path / "log"
    with running_cluster(tmp_path / "bare", "--bare") as bare:
        async with await config.new_client_from_config(str(bare.kubeconfig)) as bare_api:
            await install_definition(bare_api)
            async with running_operator(bare.kubeconfig, "default", ray, log) as operator:
                assert await asyncio.wait_for(operator.process.wait(), 60) == 1
            said = log.read_text()
            assert "does not serve rayclusters.ray.io/v1: install KubeRay" in said
            assert "Traceback" not in said
            await install_definition(bare_api, definition)
            async with running_operator(bare.kubeconfig, "default", ray, log) as operator:
                await operator.until_ready()
                jobs = Jobs(bare_api, "default")
                await jobs.create(manifest())
                await jobs.until_cluster(lambda cluster: True)
