"""The cluster of the end-to-end tests behaves like a real one, and leaves nothing behind.

Aspects: names and Services across nodes; volumes of one node and of all; network policies;
images by name; a cluster that is down leaves no process, mount, interface, rule or cgroup.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes.aio import client

from e2e.deployment import TOOLBOX, Deployment
from kube.harness import HACK, Object, is_ready, running_cluster, until


def pod(name: str, command: str, node: str = "", claim: str = "") -> Object:
    """A pod of one shell command."""
    container: Object = {"name": "main", "image": TOOLBOX, "command": ["sh", "-c", command]}
    spec: Object = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    if claim:
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": spec,
    }


def claim(name: str, storage_class: str, mode: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": storage_class,
            "accessModes": [mode],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


SERVER = "echo hello > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "server"},
    "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]},
}
NOBODY_ENTERS = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "closed"},
    "spec": {"podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"]},
}
ASK = "timeout 3 wget -q -O- http://server || echo nothing"


def apply(deployment: Deployment, namespace: str, *items: Object) -> None:
    for item in items:
        deployment.kubectl("apply", "-n", namespace, "-f", "-", given=item)


async def until_ready(api: client.ApiClient, namespace: str) -> None:
    await until(
        lambda pods: all(is_ready(pod) for pod in pods),
        client.CoreV1Api(api).list_namespaced_pod,
        namespace,
        timeout=60,
    )


async def test_a_service_is_reached_by_name_from_another_node_until_a_policy_forbids_it(
    deployment: Deployment, api: client.ApiClient, namespace: str
) -> None:
    server = pod("server", SERVER, "node-0")
    caller = pod("caller", "sleep 100000", "node-1")
    apply(deployment, namespace, server, caller, SERVICE)
    await until_ready(api, namespace)
    # kube-proxy learns of a new Service within a second or two.
    retried = f"for i in 1 2 3 4 5; do {ASK.replace('echo nothing', 'sleep 1')}; done"
    assert "hello" in deployment.in_pod(namespace, "caller", retried)

    apply(deployment, namespace, NOBODY_ENTERS)

    denied = f"for i in 1 2 3 4 5; do {ASK}; done"
    assert deployment.in_pod(namespace, "caller", denied).splitlines()[-1] == "nothing"


async def test_a_shared_volume_is_the_same_on_both_nodes(
    deployment: Deployment, api: client.ApiClient, namespace: str
) -> None:
    writer = pod("writer", "echo written > /data/file; sleep 100000", "node-0", claim="shared")
    reader = pod("reader", "sleep 100000", "node-1", claim="shared")
    apply(deployment, namespace, claim("shared", "shared", "ReadWriteMany"), writer, reader)
    await until_ready(api, namespace)

    assert deployment.in_pod(namespace, "reader", "cat /data/file") == "written\n"


async def test_a_volume_outlives_the_pods_that_use_it(
    deployment: Deployment, api: client.ApiClient, namespace: str
) -> None:
    own = claim("own", "local-path", "ReadWriteOnce")
    apply(
        deployment, namespace, own, pod("first", "echo kept > /data/file; sleep 100000", "", "own")
    )
    await until_ready(api, namespace)
    deployment.kubectl("delete", "pod", "first", "-n", namespace)

    apply(deployment, namespace, pod("second", "sleep 100000", claim="own"))
    await until_ready(api, namespace)

    assert deployment.in_pod(namespace, "second", "cat /data/file") == "kept\n"


_SIGNS = (": pods", "10.244.", "KUBE-")


def traces(state: Path) -> set[str]:
    """What of clusters can be found on the machine; of processes and mounts, only this one's."""
    outside = [["ip", "-o", "link"], ["ip", "netns", "list"], ["iptables-save"]]
    lines = [
        line
        for command in outside
        for line in subprocess.check_output(command).decode().split("\n")
    ]
    return {
        *(line for line in lines if ": pods" in line or "10.244." in line or "KUBE-" in line),
        *(line for line in Path("/proc/self/mounts").read_text().split("\n") if str(state) in line),
        *(str(path) for path in Path("/sys/fs/cgroup").glob("*/grpo-*")),
        *(
            line
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if str(state) in (line := read(path))
        ),
    }


def read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return ""


@pytest.mark.parametrize("end", ["by command", "killed"])
def test_a_cluster_that_has_ended_leaves_nothing_behind(tmp_path: Path, end: str) -> None:
    before = traces(tmp_path)

    with running_cluster(tmp_path, "--real-nodes=1") as cluster:
        use(tmp_path)
        during = traces(tmp_path)
        if end == "killed":
            cluster.runner.kill()

    if end == "killed":
        subprocess.run(
            [sys.executable, HACK / "cluster.py", "down", "--state", tmp_path], check=True
        )
    ours = during - before
    assert any("kubelet" in trace for trace in ours)
    assert any("cgroup" in trace for trace in ours)
    assert not ours & traces(tmp_path)
    assert not (tmp_path / "nodes").exists()


def use(state: Path) -> None:
    """Runs a pod with a volume and a Service."""
    deployment = Deployment(state, Path())
    for item in (
        claim("own", "local-path", "ReadWriteOnce"),
        pod("server", SERVER, claim="own"),
        SERVICE,
    ):
        deployment.kubectl("apply", "-f", "-", given=item)
    deployment.kubectl("wait", "pod/server", "--for=condition=Ready", "--timeout=60s")
