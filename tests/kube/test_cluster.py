"""The test cluster behaves as a cluster does.

Aspects: KubeRay makes pods and replaces them; pods wait for accelerators, images and volumes;
pods, containers and nodes get lost; RBAC is enforced; two clusters run at once; a cluster ends
with its runner, and nothing else does.
"""

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes.aio import client, config
from kubernetes.aio.client import ApiClient, ApiException, CoreV1Api, CustomObjectsApi

from kube.harness import (
    HACK,
    MISSING_IMAGE,
    Cluster,
    Object,
    condition,
    evict_pod,
    fail_pod,
    is_ready,
    lost_node,
    restart_containers,
    running_cluster,
    service_account,
    until,
)

RAY_CLUSTERS = ("ray.io", "v1")
GROUP_LABEL = "ray.io/group"


def pod_template(*, image: str, accelerators: int, **spec: Object) -> Object:
    resources = {"limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(accelerators)}}
    return {
        "spec": {"containers": [{"name": "ray", "image": image, "resources": resources}]} | spec
    }


def ray_cluster(workers: Object, replicas: int) -> Object:
    head = pod_template(image="ray", accelerators=0)
    group = {
        "groupName": "workers",
        "replicas": replicas,
        "minReplicas": replicas,
        "maxReplicas": replicas,
        "rayStartParams": {},
        "template": workers,
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "rl"},
        "spec": {
            "headGroupSpec": {"rayStartParams": {}, "template": head},
            "workerGroupSpecs": [group],
        },
    }


def workers_of(pods: list[Object]) -> list[Object]:
    return [pod for pod in pods if pod["metadata"]["labels"].get(GROUP_LABEL) == "workers"]


async def start_workers(
    api: ApiClient, namespace: str, replicas: int = 1, **spec: Object
) -> list[Object]:
    """The Ready worker pods of a new RayCluster."""
    template = pod_template(image="ray", accelerators=1, **spec)
    await CustomObjectsApi(api).create_namespaced_custom_object(
        *RAY_CLUSTERS, namespace, "rayclusters", ray_cluster(template, replicas)
    )
    pods = await until(
        lambda pods: len(pods) == 1 + replicas and all(is_ready(pod) for pod in pods),
        CoreV1Api(api).list_namespaced_pod,
        namespace,
    )
    return workers_of(pods)


async def until_replaced(api: ApiClient, namespace: str, old: Object) -> None:
    """Waits until the worker `old` is gone and another is Ready in its place."""

    def replaced(pods: list[Object]) -> bool:
        workers = workers_of(pods)
        return all(pod["metadata"]["uid"] != old["metadata"]["uid"] for pod in workers) and any(
            is_ready(pod) for pod in workers
        )

    await until(replaced, CoreV1Api(api).list_namespaced_pod, namespace)


async def test_a_ray_cluster_becomes_pods_that_are_ready(api: ApiClient, namespace: str) -> None:
    workers = await start_workers(api, namespace, replicas=2)

    assert len(workers) == 2
    await until(
        lambda clusters: (
            clusters[0].get("status", {}).get("readyWorkerReplicas") == 2
            and condition(clusters[0], "HeadPodReady") == "True"
        ),
        CustomObjectsApi(api).list_namespaced_custom_object,
        *RAY_CLUSTERS,
        namespace,
        "rayclusters",
    )


async def test_a_failed_worker_is_replaced(api: ApiClient, namespace: str) -> None:
    [worker] = await start_workers(api, namespace)

    await fail_pod(api, namespace, worker["metadata"]["name"], exit_code=137, reason="OOMKilled")

    await until_replaced(api, namespace, worker)


async def test_an_evicted_worker_is_replaced(api: ApiClient, namespace: str) -> None:
    [worker] = await start_workers(api, namespace)

    await evict_pod(api, namespace, worker["metadata"]["name"])

    await until_replaced(api, namespace, worker)


async def test_a_disruption_budget_forbids_an_eviction(api: ApiClient, namespace: str) -> None:
    [worker] = await start_workers(api, namespace)
    policy = client.PolicyV1Api(api)
    selector = {"matchLabels": {GROUP_LABEL: "workers"}}
    budget = {"metadata": {"name": "keep"}, "spec": {"minAvailable": 1, "selector": selector}}
    await policy.create_namespaced_pod_disruption_budget(namespace, budget)
    await until(
        lambda budgets: budgets[0].get("status", {}).get("currentHealthy") == 1,
        policy.list_namespaced_pod_disruption_budget,
        namespace,
    )

    with pytest.raises(ApiException) as refused:
        await evict_pod(api, namespace, worker["metadata"]["name"])

    assert refused.value.status == 429


async def test_containers_restart_within_their_pod(api: ApiClient, namespace: str) -> None:
    [worker] = await start_workers(api, namespace)

    await restart_containers(api, namespace, worker["metadata"]["name"], reason="OOMKilled")

    pod = await CoreV1Api(api).read_namespaced_pod(worker["metadata"]["name"], namespace)
    [container] = pod.status.container_statuses
    assert pod.metadata.uid == worker["metadata"]["uid"]
    assert container.restart_count == 1
    assert container.last_state.terminated.reason == "OOMKilled"


async def test_the_pods_of_a_lost_node_hang_until_it_is_back(
    api: ApiClient, namespace: str, node: str
) -> None:
    [worker] = await start_workers(api, namespace, nodeSelector={"pool": node})
    pods = CoreV1Api(api).list_namespaced_pod

    def hangs(pods: list[Object]) -> bool:
        pod = next(p for p in pods if p["metadata"]["uid"] == worker["metadata"]["uid"])
        return not is_ready(pod) and "deletionTimestamp" in pod["metadata"]

    async with lost_node(api, node):
        await until(hangs, pods, namespace, timeout=60)

    await until_replaced(api, namespace, worker)


async def test_a_pod_waits_for_accelerators_that_no_node_has(
    api: ApiClient, namespace: str
) -> None:
    core = CoreV1Api(api)
    template = pod_template(image="ray", accelerators=9)
    await core.create_namespaced_pod(namespace, {"metadata": {"name": "greedy"}} | template)

    [pod] = await until(
        lambda pods: condition(pods[0], "PodScheduled") == "False",
        core.list_namespaced_pod,
        namespace,
    )

    assert "Insufficient nvidia.com/gpu" in pod["status"]["conditions"][0]["message"]


async def test_a_pod_waits_for_an_image_that_cannot_be_pulled(
    api: ApiClient, namespace: str
) -> None:
    template = pod_template(image=MISSING_IMAGE, accelerators=0)
    await CustomObjectsApi(api).create_namespaced_custom_object(
        *RAY_CLUSTERS, namespace, "rayclusters", ray_cluster(template, replicas=1)
    )

    def reason(pods: list[Object]) -> str | None:
        for pod in workers_of(pods):
            for container in pod["status"].get("initContainerStatuses", []):
                return str(container["state"]["waiting"]["reason"])
        return None

    await until(
        lambda pods: reason(pods) == "ImagePullBackOff",
        CoreV1Api(api).list_namespaced_pod,
        namespace,
    )


async def test_a_claim_for_a_shared_volume_binds(api: ApiClient, namespace: str) -> None:
    core = CoreV1Api(api)
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteMany"], "resources": resources}
    await core.create_namespaced_persistent_volume_claim(
        namespace, {"metadata": {"name": "run"}, "spec": spec}
    )

    await until(
        lambda claims: claims[0]["status"].get("phase") == "Bound",
        core.list_namespaced_persistent_volume_claim,
        namespace,
    )


async def test_a_service_account_may_do_what_its_role_says_and_no_more(
    api: ApiClient, cluster: Cluster, namespace: str
) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    kubeconfig = await service_account(api, cluster, namespace, rules)

    async with await config.new_client_from_config(str(kubeconfig)) as limited:
        core = CoreV1Api(limited)
        assert (await core.list_namespaced_pod(namespace)).items == []
        for forbidden in (
            core.list_namespaced_pod("default"),
            core.list_namespaced_secret(namespace),
            core.delete_collection_namespaced_pod(namespace),
        ):
            with pytest.raises(ApiException) as refused:
                await forbidden
            assert refused.value.status == 403


async def test_two_clusters_run_at_once(api: ApiClient, namespace: str, tmp_path: Path) -> None:
    with running_cluster(tmp_path, "--bare") as other:
        async with await config.new_client_from_config(str(other.kubeconfig)) as other_api:
            there = await CoreV1Api(other_api).list_namespace()
        here = await CoreV1Api(api).list_namespace()

    assert namespace in [item.metadata.name for item in here.items]
    assert namespace not in [item.metadata.name for item in there.items]


def test_a_cluster_ends_with_its_runner_however_that_ends(tmp_path: Path) -> None:
    with running_cluster(tmp_path, "--bare") as cluster:
        record = (cluster.state / "processes.jsonl").read_text().splitlines()
        pidfds = {os.pidfd_open(json.loads(line)["pid"]) for line in record}

        cluster.runner.kill()

        assert len(pidfds) == 4
        for pidfd in pidfds:
            assert select.select([pidfd], [], [], 10)[0]
            os.close(pidfd)


def test_a_process_that_inherited_a_recorded_pid_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        gone = {"name": "etcd", "pid": stranger.pid, "start_time": 1}
        (tmp_path / "processes.jsonl").write_text(json.dumps(gone) + "\n")

        subprocess.run(
            [sys.executable, HACK / "cluster.py", "down", "--state", tmp_path], check=True
        )

        assert stranger.poll() is None
        stranger.kill()
