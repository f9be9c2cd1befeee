"""Jobs in a Kueue queue.

Aspects: a job waits, without pods, while another uses the quota; it trains once that one is
deleted; a job that has ended releases its quota. The images of the first do not exist: Kueue
counts requests.
"""

from collections.abc import Callable, Iterator

import pytest
from kubernetes.aio import client

from e2e.runs import Runs, quickstart
from kube.harness import MISSING_IMAGE, Object, until
from kube.operator_harness import condition_of, phase_of

JOB_LABEL = "grpo-operator.io/job"
KUEUE = ("kueue.x-k8s.io", "v1beta2")
QUOTA = {"cpu": "400m", "memory": "8Gi"}
"""Enough for one job, whose three pods ask for 100m each, and not for two."""
WAIT_SECONDS = 120
"""The garbage collector takes half a minute to learn of a new kind, and deletes what jobs own."""


def queue_of(namespace: str) -> list[Object]:
    """A quota with the namespace's name, and the namespace's queue for it."""
    amounts = [{"name": name, "nominalQuota": amount} for name, amount in QUOTA.items()]
    flavors = [{"name": namespace, "resources": amounts}]
    group = {"coveredResources": list(QUOTA), "flavors": flavors}
    rules = {"namespaceSelector": {}, "resourceGroups": [group]}
    meta = {"name": namespace}
    objects = [
        {"kind": "ResourceFlavor", "metadata": meta},
        {"kind": "ClusterQueue", "metadata": meta, "spec": rules},
        {
            "kind": "LocalQueue",
            "metadata": {"name": "queue", "namespace": namespace},
            "spec": {"clusterQueue": namespace},
        },
    ]
    return [{"apiVersion": "/".join(KUEUE), **item} for item in objects]


@pytest.fixture
def queue(runs: Runs) -> Iterator[str]:
    """The name of a queue of the test's namespace."""
    for item in queue_of(runs.namespace):
        runs.deployment.kubectl("apply", "-f", "-", given=item)
    yield "queue"
    for kind in ("clusterqueue", "resourceflavor"):
        runs.deployment.kubectl("delete", kind, runs.namespace, "--wait=false")


async def until_used(runs: Runs, cpu: str) -> None:
    """Waits until the quota's use is so many CPUs."""

    def is_used(queues: list[Object]) -> bool:
        usage = queues[0].get("status", {}).get("flavorsUsage", [])
        amounts = {(r["name"], r["total"]) for flavor in usage for r in flavor["resources"]}
        return ("cpu", cpu) in amounts

    listing = client.CustomObjectsApi(runs.jobs.api).list_cluster_custom_object
    mine = f"metadata.name={runs.namespace}"
    await until(
        is_used, listing, *KUEUE, "clusterqueues", timeout=WAIT_SECONDS, field_selector=mine
    )


async def until_refused(runs: Runs) -> None:
    """Waits until Kueue has found no room for a workload of the namespace."""

    def is_refused(workload: Object) -> bool:
        reserved = condition_of(workload, "QuotaReserved")
        return reserved["status"] == "False" and "insufficient unused quota" in reserved["message"]

    listing = client.CustomObjectsApi(runs.jobs.api).list_namespaced_custom_object
    await until(
        lambda workloads: any(map(is_refused, workloads)),
        listing,
        *(*KUEUE, runs.namespace, "workloads"),
        timeout=WAIT_SECONDS,
    )


async def suspended(runs: Runs) -> dict[str, bool]:
    """Whether the RayCluster of each job is suspended."""
    clusters = await runs.jobs.clusters()
    return {c["metadata"]["labels"][JOB_LABEL]: c["spec"]["suspend"] for c in clusters}


def only(job: str) -> Callable[[list[Object]], bool]:
    """Whether the pods are a head, a producer and a consumer of one job, and no others."""
    return lambda pods: [pod["metadata"]["labels"][JOB_LABEL] for pod in pods] == [job] * 3


async def test_a_job_waits_for_the_quota_of_another_one_then_trains_and_leaves_it_free(
    runs: Runs, queue: str
) -> None:
    nowhere = {pool: {"image": MISSING_IMAGE} for pool in ("head", "producers", "consumers")}
    runs.apply(quickstart("first", queueName=queue, **nowhere))
    await runs.until("first", lambda job: phase_of(job) == "Starting")
    await until_used(runs, "300m")
    await runs.jobs.until_pods(only("first"), timeout=WAIT_SECONDS)

    runs.apply(quickstart("second", queueName=queue, maxSteps=3, evaluation={"interval": 0}))
    await until_refused(runs)
    second = await runs.until(
        "second", lambda job: condition_of(job, "ClusterReady")["reason"] == "Queued"
    )
    assert phase_of(second) == "Queued"
    assert phase_of(await runs.jobs.get("first")) == "Starting"
    assert await suspended(runs) == {"first": False, "second": True}
    assert only("first")(await runs.jobs.pods())

    await runs.jobs.delete("first")
    await runs.until("second", lambda job: phase_of(job) == "Starting")
    assert await suspended(runs) == {"second": False}
    await runs.jobs.until_pods(only("second"), timeout=WAIT_SECONDS)

    second = await runs.until("second", lambda job: phase_of(job) == "Succeeded")
    assert runs.steps(second) == [1, 2, 3]
    await until_used(runs, "0")
