"""The operator under test: its CRD, its process, and its jobs."""

import asyncio
import contextlib
import copy
import os
import signal
import socket
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from kubernetes.aio import client

from kube.fake_ray import FakeHead, FakeRay
from kube.harness import Object, until

GROUP, VERSION, PLURAL = "grpo-operator.io", "v1alpha1", "grpojobs"
JOBS = (GROUP, VERSION, PLURAL)
CLUSTERS = ("ray.io", "v1", "rayclusters")
DEFINITION = Path(__file__).resolve().parents[2] / "crds" / "grpojobs.yaml"
MERGE_PATCH = "application/merge-patch+json"
CPU_ONLY = {"accelerator": "cpu"}
_AS_IN_A_POD = """
mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io &&
ln -s "$1" /run/secrets/kubernetes.io/serviceaccount && shift && exec "$@"
"""
"""In a mount namespace of its own: puts a directory where a pod has its service account."""


async def install_definition(api: client.ApiClient, definition: Object | None = None) -> None:
    """Installs GRPOJob's definition or another, unless it is there; waits until it is served."""
    extensions = client.ApiextensionsV1Api(api)
    definition = definition or yaml.safe_load(DEFINITION.read_text())
    try:
        await extensions.create_custom_resource_definition(definition)
    except client.ApiException as error:
        if error.status != 409:
            raise
    await until(
        lambda found: any(
            c["type"] == "Established" and c["status"] == "True"
            for item in found
            for c in item.get("status", {}).get("conditions", [])
        ),
        extensions.list_custom_resource_definition,
        field_selector=f"metadata.name={definition['metadata']['name']}",
    )


async def update_definition(api: client.ApiClient, definition: Object) -> None:
    """Replaces a definition, and waits until the API server validates by the new one.

    The definition gets a field of its own for that, and then loses it again.
    """
    extensions = client.ApiextensionsV1Api(api)
    name, group = definition["metadata"]["name"], definition["spec"]["group"]
    probe = f"probe{uuid.uuid4().hex[:8]}"
    changed = copy.deepcopy(definition)
    schema = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"][probe] = {"type": "string", "default": "served"}
    for body in (changed, definition):
        found = await extensions.read_custom_resource_definition(name)
        body["metadata"]["resourceVersion"] = found.metadata.resource_version
        await extensions.replace_custom_resource_definition(name, body)
        async with asyncio.timeout(30):
            while await _has_default(api, group, probe) is not (body is changed):
                await asyncio.sleep(0.1)  # a definition does not show when it is served


async def _has_default(api: client.ApiClient, group: str, field: str) -> bool | None:
    """Whether a job gets a field by the definition that is served; nothing is created.

    None while the API server replaces the definition and answers that it is shutting down.
    """
    body = manifest("probe") | {"apiVersion": f"{group}/{VERSION}"}
    try:
        found = await client.CustomObjectsApi(api).create_namespaced_custom_object(
            group, VERSION, "default", PLURAL, body, dry_run="All"
        )
    except client.ApiException as error:
        if error.status != 503:
            raise
        return None
    return field in found


def manifest(name: str = "job", **spec: Any) -> Object:
    """A small legal job whose pods any node can take."""
    small: Object = {
        "storage": {"size": "1Gi"},
        "producers": dict(CPU_ONLY),
        "consumers": dict(CPU_ONLY),
    }
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "GRPOJob",
        "metadata": {"name": name},
        "spec": {**small, **spec},
    }


@dataclass(frozen=True)
class Jobs:
    """The GRPOJobs of a namespace, and what belongs to them."""

    api: client.ApiClient
    namespace: str

    @property
    def _custom(self) -> client.CustomObjectsApi:
        return client.CustomObjectsApi(self.api)

    async def create(self, body: Object) -> Object:
        return await self._custom.create_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURAL, body
        )

    async def get(self, name: str = "job") -> Object:
        return await self._custom.get_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURAL, name
        )

    async def patch(self, spec: Object, name: str = "job") -> Object:
        return await self._custom.patch_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURAL, name, {"spec": spec}, _content_type=MERGE_PATCH
        )

    async def patch_status(self, status: Object, name: str = "job") -> None:
        await self._custom.patch_namespaced_custom_object_status(
            GROUP,
            VERSION,
            self.namespace,
            PLURAL,
            name,
            {"status": status},
            _content_type=MERGE_PATCH,
        )

    async def delete(self, name: str = "job") -> None:
        await self._custom.delete_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURAL, name
        )

    async def until(
        self, holds: Callable[[Object], Any], name: str = "job", timeout: float = 40
    ) -> Object:
        """Waits until `holds` of the job, and returns it."""

        def found(items: list[Object]) -> bool:
            return any(item["metadata"]["name"] == name and holds(item) for item in items)

        listing = self._custom.list_namespaced_custom_object
        items = await until(found, listing, GROUP, VERSION, self.namespace, PLURAL, timeout=timeout)
        return next(item for item in items if item["metadata"]["name"] == name)

    async def until_reason(self, reason: str, name: str = "job", timeout: float = 60) -> Object:
        """Waits until the pods of a job are not ready for this reason."""
        return await self.until(
            lambda job: condition_of(job, "ClusterReady")["reason"] == reason, name, timeout
        )

    async def create_claim(self, name: str, storage_class: str | None = None) -> None:
        """A claim that one node at a time can mount."""
        body: Object = {
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        if storage_class is not None:
            body["spec"]["storageClassName"] = storage_class
        core = client.CoreV1Api(self.api)
        await core.create_namespaced_persistent_volume_claim(self.namespace, body)

    async def until_phase(self, phase: str, name: str = "job", timeout: float = 40) -> Object:
        return await self.until(lambda job: phase_of(job) == phase, name, timeout)

    async def until_gone(self, resource: tuple[str, str, str] = JOBS, timeout: float = 40) -> None:
        """Waits until no object of the kind is left."""
        group, version, plural = resource
        listing = self._custom.list_namespaced_custom_object
        await until(
            lambda items: not items,
            listing,
            group,
            version,
            self.namespace,
            plural,
            timeout=timeout,
        )

    async def clusters(self) -> list[Object]:
        group, version, plural = CLUSTERS
        found = await self._custom.list_namespaced_custom_object(
            group, version, self.namespace, plural
        )
        return found["items"]

    async def refusal_of_a_cluster(self) -> str:
        """What the API server would say against a RayCluster; nothing is created."""
        group, version, plural = CLUSTERS
        head = {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "ray"}]}}}
        body = {
            "apiVersion": f"{group}/{version}",
            "kind": "RayCluster",
            "metadata": {"name": "small"},
            "spec": {"headGroupSpec": head},
        }
        try:
            await self._custom.create_namespaced_custom_object(
                group, version, self.namespace, plural, body, dry_run="All"
            )
        except client.ApiException as error:
            return str(error.body)
        return ""

    async def until_cluster(self, holds: Callable[[Object], Any], timeout: float = 40) -> Object:
        """Waits until there is one RayCluster of which it holds."""
        group, version, plural = CLUSTERS
        listing = self._custom.list_namespaced_custom_object
        (cluster,) = await until(
            lambda items: len(items) == 1 and bool(holds(items[0])),
            listing,
            group,
            version,
            self.namespace,
            plural,
            timeout=timeout,
        )
        return cluster

    async def pods(self, group: str = "") -> list[Object]:
        selector = f"ray.io/group={group}" if group else ""
        found = await client.CoreV1Api(self.api).list_namespaced_pod(
            self.namespace, label_selector=selector
        )
        return self.api.sanitize_for_serialization(found)["items"]

    async def until_pods(self, holds: Callable[[list[Object]], Any], timeout: float = 40) -> None:
        listing = client.CoreV1Api(self.api).list_namespaced_pod
        await until(lambda items: bool(holds(items)), listing, self.namespace, timeout=timeout)

    async def until_event(self, reason: str, timeout: float = 40) -> None:
        """Waits until a GRPOJob has an Event of this reason."""
        listing = client.CoreV1Api(self.api).list_namespaced_event
        await until(
            lambda items: any(
                e["reason"] == reason and e["involvedObject"]["kind"] == "GRPOJob" for e in items
            ),
            listing,
            self.namespace,
            timeout=timeout,
        )

    async def events(self) -> list[Object]:
        found = await client.CoreV1Api(self.api).list_namespaced_event(self.namespace)
        items = self.api.sanitize_for_serialization(found)["items"]
        return [e for e in items if e["involvedObject"]["kind"] == "GRPOJob"]


def phase_of(job: Object) -> str:
    return job.get("status", {}).get("phase", "")


def observed(job: Object) -> bool:
    """Whether an operator has written the status; the definition gives new jobs a phase, too."""
    return job.get("status", {}).get("observedGeneration", 0) > 0


def condition_of(job: Object, kind: str) -> Object:
    found = job.get("status", {}).get("conditions", [])
    return next(
        (c for c in found if c["type"] == kind), {"status": "", "reason": "", "message": ""}
    )


@dataclass(frozen=True)
class Operator:
    """A running operator."""

    process: asyncio.subprocess.Process
    port: int
    log: Path

    def kill(self) -> None:
        """As a node's failure does: no goodbye."""
        self.process.send_signal(signal.SIGKILL)

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text of its own HTTP server; 0 while it does not listen."""
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                return response.status, await response.text()
        except aiohttp.ClientError:
            return 0, ""

    async def until_ready(self, timeout: float = 60) -> None:
        await self._until("/readyz", 200, timeout)

    async def until_health(self, status: int, timeout: float) -> None:
        """Waits until its liveness answers so."""
        await self._until("/healthz", status, timeout)

    async def leads(self) -> bool:
        """Whether it is the replica that acts."""
        _, text = await self.get("/metrics")
        return "grpo_operator_leader 1.0" in text

    async def until_metric(self, line: str, timeout: float) -> None:
        """Waits until its metrics contain a line."""
        async with asyncio.timeout(timeout):
            while line not in (await self.get("/metrics"))[1]:
                await asyncio.sleep(0.1)  # metrics can only be asked again

    async def until_leads(self, timeout: float) -> None:
        async with asyncio.timeout(timeout):
            while not await self.leads():
                await asyncio.sleep(0.1)  # metrics can only be asked again

    async def _until(self, path: str, status: int, timeout: float) -> None:
        async with asyncio.timeout(timeout):
            while (await self.get(path))[0] != status:
                await asyncio.sleep(0.1)  # a health endpoint can only be asked again


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextlib.asynccontextmanager
async def running_operator(
    kubeconfig: Path,
    namespace: str,
    ray: FakeRay,
    log: Path,
    *,
    service_account: Path | None = None,
    **environment: str,
) -> AsyncIterator[Operator]:
    """The operator as a process of its own, serving one namespace; ends with the block.

    With the files of a `service_account` it finds them where a pod does.
    """
    port = free_port()
    command = (sys.executable, "-m", "grpo_operator")
    if service_account is not None:
        unshare = ("unshare", "--map-root-user", "--mount", "sh", "-c", _AS_IN_A_POD, "sh")
        command = (*unshare, str(service_account), *command)
    variables = {
        "KUBECONFIG": str(kubeconfig),
        "GRPO_NAMESPACES": namespace,
        "GRPO_HEAD_URL_TEMPLATE": ray.url_template,
        "GRPO_LISTEN_PORT": str(port),
        "GRPO_LOG_FORMAT": "plain",
        "GRPO_LOG_LEVEL": "DEBUG",
        "GRPO_LEADER_ELECTION": "false",
        "GRPO_STATUS_SECONDS": "1",
        "GRPO_NETWORK_POLICY": '{"operator": [{"podSelector": {}}], "monitoring": []}',
        "POD_NAMESPACE": namespace,
        **environment,
    }
    path = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"}
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command, env=path | variables, stderr=output
        )
    try:
        yield Operator(process, port, log)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 15)
            except TimeoutError:
                process.kill()
                await process.wait()
                raise


async def start(jobs: Jobs, ray: FakeRay, **spec: Any) -> FakeHead:
    """A job whose first attempt runs; returns its head."""
    await jobs.create(manifest(**spec))
    await jobs.until_phase("Running")
    return await ray.only_head()
