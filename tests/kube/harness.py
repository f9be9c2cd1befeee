"""Running a test cluster, injecting faults into it, and waiting for its objects.

Objects are plain dicts in the API's spelling, independent of the client call that returned them.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from types import MethodType
from typing import Any

import yaml
from kubernetes.aio import client, watch

from kube.accounts import ServiceAccount

Object = dict[str, Any]

MISSING_IMAGE = "registry.invalid/missing:latest"
"""No node can pull it: a pod that asks for it stays Pending with ImagePullBackOff."""

HACK = Path(__file__).resolve().parents[2] / "hack" / "cluster"
_SCRIPT = (sys.executable, str(HACK / "cluster.py"))
_STOP_SECONDS = 30
_MERGE = "application/merge-patch+json"
_STRATEGIC_MERGE = "application/strategic-merge-patch+json"


@dataclass(frozen=True)
class Cluster:
    state: Path
    kubeconfig: Path
    """The administrator's."""
    runner: "subprocess.Popen[str]"
    """Holds the cluster up until its stdin closes; the components die with it."""

    def log_tails(self) -> str:
        """The end of every component's log."""
        command = [*_SCRIPT, "logs", "--state", str(self.state)]
        return subprocess.check_output(command, text=True)


@contextlib.contextmanager
def running_cluster(state: Path, *options: str) -> Iterator[Cluster]:
    """A cluster in the directory `state`, with `options` of `cluster.py run`.

    Raises:
        RuntimeError: it did not start, or a component ended meanwhile; stderr says which and why.
    """
    runner = subprocess.Popen(
        [*_SCRIPT, "run", "--state", str(state), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # an interrupt of the tests must reach it through stdin only
    )
    assert runner.stdin is not None
    assert runner.stdout is not None
    try:
        # The runner has a deadline of its own, and closes its stdout when it gives up.
        kubeconfig = runner.stdout.readline().strip()
        if not kubeconfig:
            raise RuntimeError(f"the cluster in {state} did not start")
        yield Cluster(state, Path(kubeconfig), runner)
    finally:
        runner.stdin.close()
        status = runner.wait(_STOP_SECONDS)
        runner.stdout.close()
    if status > 0:
        raise RuntimeError(f"a component of the cluster in {state} ended by itself")


def kubectl(cluster: Cluster, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """What kubectl printed, with all rights."""
    return subprocess.run(
        ["kubectl", "--kubeconfig", cluster.kubeconfig, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


async def until(
    holds: Callable[[list[Object]], bool],
    collection: MethodType,
    *arguments: str,
    timeout: float = 30,
    **selectors: str,
) -> list[Object]:
    """Watches `collection`, a list call of a client, until `holds` of all its objects.

    Returns the objects of that moment.

    Raises:
        AssertionError: not within `timeout` seconds; the message shows the objects.
    """
    objects: dict[str, Object] = {}
    try:
        async with asyncio.timeout(timeout), watch.Watch() as watcher:
            caller: Any = collection.__self__
            listed = caller.api_client.sanitize_for_serialization(
                await collection(*arguments, **selectors)
            )
            objects = {item["metadata"]["uid"]: item for item in listed["items"]}
            events = watcher.stream(
                collection,
                *arguments,
                resource_version=listed["metadata"]["resourceVersion"],
                **selectors,
            )
            while not holds(list(objects.values())):
                event = await anext(events)
                item = event["raw_object"]
                if event["type"] == "DELETED":
                    objects.pop(item["metadata"]["uid"], None)
                else:
                    objects[item["metadata"]["uid"]] = item
    except TimeoutError as error:
        shown = yaml.safe_dump([_summary(item) for item in objects.values()])
        raise AssertionError(f"not within {timeout} s; last seen:\n{shown}") from error
    return list(objects.values())


def _summary(item: Object) -> Object:
    meta = item["metadata"]
    return {
        "name": meta["name"],
        "deleted": meta.get("deletionTimestamp"),
        "status": item.get("status"),
    }


def condition(item: Object, kind: str) -> str | None:
    """The status of the condition `kind`: True, False or Unknown; None if there is none."""
    conditions = item.get("status", {}).get("conditions", [])
    return next((c["status"] for c in conditions if c["type"] == kind), None)


def is_ready(item: Object) -> bool:
    """Whether a pod or node is Ready."""
    return condition(item, "Ready") == "True"


async def create_nodes(api: client.ApiClient, names: Sequence[str], **labels: str) -> None:
    """Fake nodes with eight accelerators each; returns once the scheduler may use them."""
    core = client.CoreV1Api(api)
    template = Template((HACK / "manifests" / "node.yaml").read_text())
    for name in names:
        node = yaml.safe_load(template.substitute(name=name))
        node["metadata"]["labels"] |= labels
        await core.create_node(node)
    await until(
        lambda nodes: all(
            is_ready(node) and not node["spec"].get("taints")
            for node in nodes
            if node["metadata"]["name"] in names
        ),
        core.list_node,
    )


@contextlib.asynccontextmanager
async def lost_node(api: client.ApiClient, name: str) -> AsyncIterator[None]:
    """Inside, the node's kubelet is gone: about 10 s later the cluster sees that it is lost.

    Its pods turn not Ready at once, are deleted 5 s later, and stay Terminating until the node is
    back, at the end of the block.
    """
    core = client.CoreV1Api(api)

    async def label(value: str | None) -> None:
        patch = {"metadata": {"labels": {"type": value}}}
        await core.patch_node(name, patch, _content_type=_MERGE)

    await label(None)
    try:
        yield
    finally:
        await label("kwok")


async def fail_pod(
    api: client.ApiClient,
    namespace: str,
    name: str,
    *,
    exit_code: int = 1,
    reason: str = "Error",
    pod_reason: str | None = None,
) -> None:
    """The containers of a running pod end for good, as its kubelet reports it.

    Args:
        reason: of the containers' end, such as OOMKilled.
        pod_reason: of the pod's failure, such as Evicted or NodeShutdown.
    """
    containers = await _containers(api, namespace, name)
    ended = {"terminated": {"exitCode": exit_code, "reason": reason}}
    status = {
        "phase": "Failed",
        "reason": pod_reason,
        "containerStatuses": [c | {"ready": False, "state": ended} for c in containers],
        "conditions": [{"type": t, "status": "False"} for t in ("Ready", "ContainersReady")],
    }
    await _patch_pod_status(api, namespace, name, status)


async def restart_containers(
    api: client.ApiClient, namespace: str, name: str, *, exit_code: int = 1, reason: str = "Error"
) -> None:
    """The containers of a running pod end and are started again in the same pod."""
    containers = await _containers(api, namespace, name)
    ended = {"terminated": {"exitCode": exit_code, "reason": reason}}
    restarted = [
        c | {"restartCount": c["restartCount"] + 1, "lastState": ended} for c in containers
    ]
    await _patch_pod_status(api, namespace, name, {"containerStatuses": restarted})


async def evict_pod(api: client.ApiClient, namespace: str, name: str) -> None:
    """Asks for the pod's eviction, as `kubectl drain` does: disruption budgets count."""
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=name, namespace=namespace))
    await client.CoreV1Api(api).create_namespaced_pod_eviction(name, namespace, eviction)


async def service_account(
    api: client.ApiClient, cluster: Cluster, namespace: str, rules: Sequence[Object]
) -> Path:
    """The kubeconfig of a new service account with the `rules` of a Role, and no other rights."""
    account = await ServiceAccount.create(api, namespace)
    await account.grant(rules)
    return account.kubeconfig(cluster.kubeconfig, cluster.state, await account.token())


async def _containers(api: client.ApiClient, namespace: str, name: str) -> list[Object]:
    pod = await client.CoreV1Api(api).read_namespaced_pod(name, namespace)
    assert pod.status.container_statuses, f"{name} has not been running"
    statuses: list[Object] = api.sanitize_for_serialization(pod.status.container_statuses)
    return statuses


async def _patch_pod_status(
    api: client.ApiClient, namespace: str, name: str, status: Object
) -> None:
    await client.CoreV1Api(api).patch_namespaced_pod_status(
        name, namespace, {"status": status}, _content_type=_STRATEGIC_MERGE
    )
