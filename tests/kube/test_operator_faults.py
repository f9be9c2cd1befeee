"""Faults of the operator and of the API server.

Aspects: the operator is killed after each of its writes, an API server that fails each kind of call
once, two replicas, a lost Lease, no writes without events, dead watches.
"""

import asyncio
from pathlib import Path

from kubernetes.aio import client

from grpo_operator.clients.kube import Kube
from grpo_operator.controller.audit import Auditor
from grpo_operator.controller.cache import Cache
from grpo_operator.metrics import Metrics
from grpo_operator.model.resources import JOBS, Resource
from kube.api_proxy import ApiProxy, Call
from kube.fake_ray import FakeRay
from kube.harness import Cluster
from kube.operator_harness import (
    CLUSTERS,
    Jobs,
    Operator,
    manifest,
    phase_of,
    running_operator,
    start,
)

TAKEOVER_SECONDS = 20


class KillAfterEachWrite:
    """Kills the operator when a write of it has been done, before it knows.

    Writes of the status differ each time; of every other kind one is enough.
    """

    def __init__(self) -> None:
        self.writes: list[Call] = []
        self.operator: Operator | None = None

    async def __call__(self, call: Call) -> None:
        seen_before = call in self.writes
        self.writes.append(call)
        if self.operator is not None and (call.resource == "grpojobs/status" or not seen_before):
            self.kill()

    def kill(self) -> None:
        assert self.operator is not None
        self.operator.kill()


async def test_an_operator_killed_after_each_of_its_writes_loses_nothing(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, proxy: ApiProxy, tmp_path: Path
):
    kubeconfig = proxy.kubeconfig(cluster.kubeconfig, tmp_path / "proxied")
    proxy.after = killer = KillAfterEachWrite()
    ray.on_submit = killer.kill
    await jobs.create(manifest())
    kills = 0
    while phase_of(job := await jobs.get()) != "Succeeded" or await jobs.clusters():
        if phase_of(job) == "Running" and (head := await ray.only_head()).active:
            head.end(0)
        log = tmp_path / f"{kills}.log"
        async with running_operator(kubeconfig, jobs.namespace, ray, log) as operator:
            killer.operator = operator
            await asyncio.wait_for(operator.process.wait(), 60)
        kills += 1
    assert (await ray.only_head()).attempts == [1]
    assert (await jobs.get())["status"]["restarts"] == 0
    made = [(call.verb, call.resource) for call in killer.writes]
    assert made.count(("create", "rayclusters")) == 1
    assert ("delete", "rayclusters") in made
    assert kills >= 7


async def test_an_api_server_that_fails_each_kind_of_call_once_is_tolerated(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, proxy: ApiProxy, tmp_path: Path
):
    kubeconfig = proxy.kubeconfig(cluster.kubeconfig, tmp_path / "proxied")
    statuses = {
        ("create", "rayclusters"): 503,
        ("patch", "grpojobs/status"): 409,
        ("list", "pods"): 0,
        ("watch", "pods"): 500,
        ("create", "events"): 500,
    }

    def break_once(call: Call) -> int | None:
        return statuses.pop((call.verb, call.resource), None)

    proxy.fault = break_once
    async with running_operator(kubeconfig, jobs.namespace, ray, tmp_path / "log") as operator:
        await jobs.create(manifest())
        await jobs.until_phase("Running", timeout=90)
        head = await ray.only_head()
        head.end(0)
        await jobs.until_phase("Succeeded")
        await jobs.until_gone(CLUSTERS)
        assert operator.process.returncode is None
    assert statuses == {}, "some call was never made"
    assert head.attempts == [1]


async def test_of_two_replicas_one_leads_and_the_other_takes_over(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, tmp_path: Path
):
    def replica(name: str):
        log = tmp_path / f"{name}.log"
        environment = {"GRPO_LEADER_ELECTION": "true", "POD_NAME": name}
        return running_operator(cluster.kubeconfig, jobs.namespace, ray, log, **environment)

    async with replica("first") as first, replica("second") as second:
        await asyncio.wait(
            [asyncio.create_task(r.until_leads(30)) for r in (first, second)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        leader, other = (first, second) if await first.leads() else (second, first)
        await jobs.create(manifest())
        await jobs.until_phase("Running")
        await other.until_ready()
        assert not await other.leads()
        leader.kill()
        await other.until_leads(TAKEOVER_SECONDS)
        (await ray.only_head()).end(0)
        await jobs.until_phase("Succeeded")
    assert (await ray.only_head()).attempts == [1]


async def test_a_replica_that_is_stopped_releases_the_lease_and_one_that_loses_it_exits(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, tmp_path: Path
):
    environment = {"GRPO_LEADER_ELECTION": "true", "GRPO_LEASE_NAME": "lease"}

    def replica(name: str):
        log = tmp_path / f"{name}.log"
        environment_of = {**environment, "POD_NAME": name}
        return running_operator(cluster.kubeconfig, jobs.namespace, ray, log, **environment_of)

    async with replica("first") as first:
        await first.until_leads(30)
        async with replica("second") as second:
            await second.until_ready()
            first.process.terminate()
            assert await asyncio.wait_for(first.process.wait(), 10) == 0
            await second.until_leads(5)
            coordination = client.CoordinationV1Api(jobs.api)
            await coordination.patch_namespaced_lease(
                "lease",
                jobs.namespace,
                {"spec": {"holderIdentity": "robber"}},
                _content_type="application/merge-patch+json",
            )
            assert await asyncio.wait_for(second.process.wait(), 15) == 1


async def test_a_running_job_without_events_causes_no_writes(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, proxy: ApiProxy, tmp_path: Path
):
    def writes() -> list[Call]:
        """But for the release's claim on the namespace, whatever the number of its jobs."""
        return [call for call in proxy.calls if call.writes and call.resource != "leases"]

    kubeconfig = proxy.kubeconfig(cluster.kubeconfig, tmp_path / "proxied")
    async with running_operator(kubeconfig, jobs.namespace, ray, tmp_path / "log"):
        head = await start(jobs, ray)
        await jobs.until_event("Running")
        await head.until_polled(1)
        before = len(writes())
        await head.until_polled(2)
        assert len(writes()) == before
        assert before <= 20


async def test_what_the_watches_do_not_report_is_found_by_the_audit(jobs: Jobs):
    await jobs.create(manifest())
    kube, store, woken = Kube(jobs.api, Metrics()), Cache(), []
    auditor = Auditor(kube, store, [jobs.namespace], woken.append, Metrics())
    await auditor.compare()
    assert auditor.missed == 0, "the watch may yet tell"
    await auditor.compare()
    assert auditor.missed == 1
    store.put(JOBS, await jobs.get())
    await auditor.compare()
    assert auditor.missed == 0
    await jobs.delete()
    await auditor.compare()
    await auditor.compare()
    assert woken == [(jobs.namespace, "job")]
    assert store.job((jobs.namespace, "job")) is None


async def test_a_kind_that_is_not_installed_is_not_served(jobs: Jobs):
    kube = Kube(jobs.api, Metrics())
    assert await kube.serves(JOBS)
    assert not await kube.serves(Resource("ray.io", "v1", "raydreams"))
    assert not await kube.serves(Resource("nowhere.io", "v1", "nothings"))
