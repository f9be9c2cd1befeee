"""The pods of a job's environment, on a real API server.

Aspects: what is created and what it may; a lost pod is replaced and the run is left alone; the
pods end with the attempt and the job.
"""

from kubernetes.aio import client

from kube.fake_ray import FakeRay
from kube.harness import Object, until
from kube.operator_harness import Jobs, Operator, manifest

ENVIRONMENT = {
    "environment": {
        "module": "examples/environments/calculator.py:Calculator",
        "pods": {"replicas": 2, "resources": {"requests": {"cpu": "100m"}}},
    },
    "reward": {"type": "environment"},
}


async def pods_of(jobs: Jobs, count: int) -> list[Object]:
    """The environment's pods, once so many run."""
    uid = (await jobs.get())["metadata"]["uid"]
    return await until(
        lambda found: (
            len(found) == count
            and all(pod["status"]["phase"] == "Running" for pod in found)
            and not any(pod["metadata"].get("deletionTimestamp") for pod in found)
        ),
        client.CoreV1Api(jobs.api).list_namespaced_pod,
        jobs.namespace,
        label_selector=f"grpo-operator.io/environment-of={uid}",
        timeout=60,
    )


async def test_an_environment_runs_in_pods_without_token_and_volume(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    await jobs.create(manifest(**ENVIRONMENT))
    await jobs.until_phase("Running")
    pods = await pods_of(jobs, 2)
    for pod in pods:
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert not pod["spec"].get("volumes")
        (container,) = pod["spec"]["containers"]
        assert not container.get("env")
        assert container["command"][:2] == ["grpo", "environment"]
    core, network = client.CoreV1Api(jobs.api), client.NetworkingV1Api(jobs.api)
    uid = (await jobs.get())["metadata"]["uid"]
    (service,) = (
        await core.list_namespaced_service(
            jobs.namespace, label_selector=f"grpo-operator.io/environment-of={uid}"
        )
    ).items
    assert service.spec.cluster_ip == "None"
    (policy,) = (
        await network.list_namespaced_network_policy(
            jobs.namespace, label_selector=f"grpo-operator.io/environment-of={uid}"
        )
    ).items
    assert set(policy.spec.policy_types) == {"Ingress", "Egress"}


async def test_a_lost_environment_pod_is_replaced_and_the_run_continues(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    await jobs.create(manifest(**ENVIRONMENT))
    await jobs.until_phase("Running")
    lost, kept = await pods_of(jobs, 2)
    name = lost["metadata"]["name"]
    await client.CoreV1Api(jobs.api).delete_namespaced_pod(name, jobs.namespace)
    await until(
        lambda found: name not in {pod["metadata"]["name"] for pod in found},
        client.CoreV1Api(jobs.api).list_namespaced_pod,
        jobs.namespace,
        timeout=60,
    )
    names = {pod["metadata"]["name"] for pod in await pods_of(jobs, 2)}
    assert kept["metadata"]["name"] in names and name not in names
    job = await jobs.get()
    assert (job["status"]["phase"], job["status"]["attempt"]) == ("Running", 1)


async def test_the_environment_ends_with_the_run(operator: Operator, jobs: Jobs, ray: FakeRay):
    await jobs.create(manifest(**ENVIRONMENT))
    await jobs.until_phase("Running")
    await pods_of(jobs, 2)
    (await ray.only_head()).end(0)
    await jobs.until_phase("Succeeded")
    await pods_of(jobs, 0)
