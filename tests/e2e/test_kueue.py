"""Kueue decides when a job may have its pods.

Aspects: a job within the quota runs, the next waits and says so, the quota is free at the end.
"""

from e2e.runs import Runs, quickstart
from kube.harness import Object
from kube.operator_harness import phase_of

QUOTA = {"cpu": "400m", "memory": "8Gi"}
"""Enough for one job, whose three pods ask for 100m each."""


def queue(namespace: str) -> list[Object]:
    kueue = "kueue.x-k8s.io/v1beta2"
    amounts = [{"name": name, "nominalQuota": amount} for name, amount in QUOTA.items()]
    group = {
        "coveredResources": list(QUOTA),
        "flavors": [{"name": namespace, "resources": amounts}],
    }
    return [
        {"apiVersion": kueue, "kind": "ResourceFlavor", "metadata": {"name": namespace}},
        {
            "apiVersion": kueue,
            "kind": "ClusterQueue",
            "metadata": {"name": namespace},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": kueue,
            "kind": "LocalQueue",
            "metadata": {"name": "queue", "namespace": namespace},
            "spec": {"clusterQueue": namespace},
        },
    ]


async def test_a_second_job_waits_for_the_quota_that_the_first_one_holds(runs: Runs) -> None:
    for item in queue(runs.namespace):
        runs.deployment.kubectl("apply", "-f", "-", given=item)
    short = {"queueName": "queue", "maxSteps": 20, "evaluation": {"interval": 0}}

    await runs.start(quickstart("first", **short))
    runs.apply(quickstart("second", **short))
    await runs.until("second", lambda job: phase_of(job) == "Queued")
    assert phase_of(await runs.jobs.get("first")) == "Running"

    await runs.until("first", lambda job: phase_of(job) == "Succeeded")
    await runs.until_step("second", 1)
