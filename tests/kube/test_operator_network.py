"""Faults of the network between the operator and the API server.

Aspects: a replica without connection, short outages of every kind.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.api_proxy import HANG_UP, ApiProxy
from kube.fake_ray import FakeRay
from kube.harness import Cluster
from kube.operator_harness import Jobs, manifest, running_operator
from kube.relay import Relay

OUTAGE_SECONDS = 3
TAKEOVER_SECONDS = 20


async def test_a_replica_without_connection_has_ended_before_another_leads(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, relay: Relay, tmp_path: Path
):
    """What it said last arrives late, and must not overwrite what the other has said since."""

    def replica(name: str, kubeconfig: Path):
        environment = {"GRPO_LEADER_ELECTION": "true", "POD_NAME": name}
        log = tmp_path / f"{name}.log"
        return running_operator(kubeconfig, jobs.namespace, ray, log, **environment)

    relayed = relay.kubeconfig(cluster.kubeconfig, tmp_path / "relayed")
    async with replica("first", relayed) as first:
        await first.until_leads(30)
        async with replica("second", cluster.kubeconfig) as second:
            await jobs.create(manifest())
            await jobs.until_phase("Running")
            head = await ray.only_head()
            await second.until_ready()
            relay.cut()
            head.report(50)
            await second.until_leads(TAKEOVER_SECONDS)
            assert first.process.returncode == 1
            head.report(60)
            reported = await jobs.until(lambda job: job["status"]["progress"]["step"] == 60)
            relay.restore()
            async with asyncio.timeout(20):
                while not relay.late_bytes:
                    await asyncio.sleep(0.1)  # the relay can only be asked
            assert (await jobs.get())["status"] == reported["status"]
            head.end(0)
            done = await jobs.until_phase("Succeeded")
    assert done["status"]["progress"]["step"] == 60
    assert head.attempts == [1]


@contextlib.asynccontextmanager
async def outage(kind: str | int, proxy: ApiProxy, relay: Relay) -> AsyncIterator[None]:
    if kind == "refused":
        async with relay.down():
            yield
        return
    proxy.fault = lambda call: int(kind)
    yield
    proxy.fault = lambda call: None


@pytest.mark.parametrize("kind", [500, 503, HANG_UP, "refused"])
async def test_a_short_outage_only_delays_jobs(
    cluster: Cluster,
    jobs: Jobs,
    ray: FakeRay,
    proxy: ApiProxy,
    relay: Relay,
    tmp_path: Path,
    kind: str | int,
):
    way = relay if kind == "refused" else proxy
    kubeconfig = way.kubeconfig(cluster.kubeconfig, tmp_path / "through")
    log = tmp_path / "log"
    async with running_operator(kubeconfig, jobs.namespace, ray, log) as operator:
        await jobs.create(manifest("ends"))
        await jobs.until_phase("Running", "ends")
        head = await ray.only_head()
        async with outage(kind, proxy, relay):
            head.end(0)
            await jobs.create(manifest("begins"))
            await asyncio.sleep(OUTAGE_SECONDS)
        await jobs.until_phase("Succeeded", "ends")
        running = await jobs.until_phase("Running", "begins")
        assert running["status"]["restarts"] == 0
        assert operator.process.returncode is None
    assert "Traceback" not in log.read_text()
    assert head.attempts == [1]
