"""Load on the test cluster: when predicates first hold for many objects, and the cost."""

import asyncio
import contextlib
import json
import os
import re
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from kubernetes.aio import client

from kube.harness import until

Object = dict[str, Any]

SERVERS = ("kube-apiserver", "etcd", "kuberay-operator")
_PARALLEL = 20
_SAMPLE_SECONDS = 0.2
_STOP_SECONDS = 20.0
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_OWN_JOBS = "grpo_operator_jobs"
_OWN_CALLS = "grpo_operator_api_requests_total"
_HEARTBEATS = frozenset({"leases", "nodes"})


@dataclass
class Marks:
    """The time at which each predicate first held for each object, as a watch reports it."""

    key: Callable[[Object], str]
    holds: Mapping[str, Callable[[Object], bool]]
    times: dict[str, dict[str, float]] = field(default_factory=dict)
    """Predicate -> key of the object -> time of the event loop."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def watch(self, api: client.ApiClient, path: str) -> None:
        """Follow a collection until cancelled.

        The server may end a watch at any time, for instance of a new definition. The next one
        starts with all existing objects.
        """
        while True:
            async for event in _events(api, path):
                self._take(event["object"])
                async with self.changed:
                    self.changed.notify_all()

    def _take(self, item: Object) -> None:
        key = self.key(item)
        for mark, holds in self.holds.items():
            known = self.times.setdefault(mark, {})
            if key not in known and holds(item):
                known[key] = asyncio.get_running_loop().time()

    async def until(self, mark: str, count: int) -> float:
        """Wait until `count` objects satisfy a predicate; returns when the last one did."""
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.times.get(mark, ())) >= count)
        return max(self.times[mark].values())


async def _events(api: client.ApiClient, path: str) -> AsyncIterator[Object]:
    request = await api.param_serialize(
        method="GET",
        resource_path=path,
        query_params=[("watch", "true")],
        header_params={"Accept": "application/json"},
        auth_settings=["BearerToken"],
    )
    endless = aiohttp.ClientTimeout(total=None)
    response = await api.call_api(*request, _request_timeout=endless)
    while response.status == 429:  # the storage of a new definition is not ready at once
        await asyncio.sleep(float(response.getheader("Retry-After", "1")))
        response = await api.call_api(*request, _request_timeout=endless)
    if response.status != 200:
        raise RuntimeError(f"the watch of {path} was answered {response.status}")
    async for line in response.response.content:
        yield json.loads(line)


@contextlib.asynccontextmanager
async def watching(api: client.ApiClient, watched: dict[str, Marks]) -> AsyncIterator[None]:
    """Run watches inside the block; one that fails ends it."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(marks.watch(api, path)) for path, marks in watched.items()]
        yield
        for task in tasks:
            task.cancel()


async def in_parallel(work: Sequence[Coroutine[Any, Any, object]]) -> None:
    """Await all, a few at a time."""
    slots = asyncio.Semaphore(_PARALLEL)

    async def one(item: Coroutine[Any, Any, object]) -> None:
        async with slots:
            await item

    await asyncio.gather(*map(one, work))


def samples(text: str, metric: str) -> list[tuple[dict[str, str], float]]:
    """Labels and values of a counter in Prometheus' text format."""
    lines = (line for line in text.splitlines() if line.startswith(metric + "{"))
    return [(dict(_LABEL.findall(line)), float(line.rpartition(" ")[2])) for line in lines]


async def api_server_writes(api: client.ApiClient) -> Counter[str]:
    """Write calls to the API server so far, of all clients, by resource and subresource.

    Heartbeats of nodes and leaders are left out.
    """
    request = await api.param_serialize(
        method="GET", resource_path="/metrics", auth_settings=["BearerToken"]
    )
    text = (await (await api.call_api(*request)).read()).decode()
    found: Counter[str] = Counter()
    for labels, value in samples(text, "apiserver_request_total"):
        resource, subresource = labels["resource"], labels.get("subresource", "")
        if labels["verb"] in _WRITES and resource not in _HEARTBEATS:
            found[f"{resource}/{subresource}".rstrip("/")] += int(value)
    return found


def cpu_seconds() -> dict[str, float]:
    """CPU time so far of the whole machine, and of servers that both kinds of job use."""
    times = psutil.cpu_times()
    used = {"machine": sum(times) - times.idle - times.iowait - times.guest - times.guest_nice}
    for process in psutil.process_iter(["name", "cpu_times"]):
        name, spent = process.info["name"], process.info["cpu_times"]
        if name in SERVERS and spent is not None:
            used[name] = used.get(name, 0.0) + spent.user + spent.system
    return used


async def settled(api: client.ApiClient) -> None:
    """Return after some seconds without writes: the start has ended."""
    last = await api_server_writes(api)
    while True:
        await asyncio.sleep(10)
        now = await api_server_writes(api)
        if now == last:
            return
        last = now


@dataclass(frozen=True, slots=True)
class Bench:
    """The control plane under test."""

    api: client.ApiClient
    kubeconfig: Path
    jobs: int
    logs: Path

    @property
    def custom(self) -> client.CustomObjectsApi:
        return client.CustomObjectsApi(self.api)

    async def prepare(self, namespace: str) -> None:
        """A namespace with one volume for all its jobs."""
        core = client.CoreV1Api(self.api)
        await core.create_namespace({"metadata": {"name": namespace}})
        await until(lambda found: len(found) == 1, core.list_namespaced_service_account, namespace)
        claim = {
            "metadata": {"name": "shared"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        await core.create_namespaced_persistent_volume_claim(namespace, claim)

    async def create(
        self, group: str, version: str, namespace: str, plural: str, body: Object
    ) -> dict[str, float]:
        """Create N objects; returns the creation time of each by name."""
        asked: dict[str, float] = {}

        async def one(name: str) -> None:
            asked[name] = asyncio.get_running_loop().time()
            named = body | {"metadata": {"name": name}}
            await self.custom.create_namespaced_custom_object(
                group, version, namespace, plural, named
            )

        await in_parallel([one(f"job-{index:04}") for index in range(self.jobs)])
        return asked

    async def clear(self, group: str, version: str, namespace: str, plural: str) -> None:
        """Delete all objects of a kind; returns when their pods are gone too."""
        core = client.CoreV1Api(self.api)
        await self.custom.delete_collection_namespaced_custom_object(
            group, version, namespace, plural
        )
        await until(
            lambda pods: not pods, core.list_namespaced_pod, namespace, timeout=60 + self.jobs
        )


@dataclass
class OperatorProcess:
    """A running operator and its resource usage."""

    process: psutil.Process
    url: str
    peak_bytes: int = 0

    def cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    async def calls(self) -> Counter[str]:
        """API calls that it has counted so far, by verb and resource."""
        found: Counter[str] = Counter()
        for labels, value in samples(await self._get("/metrics"), _OWN_CALLS):
            found[f"{labels['verb']} {labels['resource']}"] += int(value)
        return found

    async def until_ready(self) -> None:
        async with asyncio.timeout(60):
            while await self._get("/readyz") != "ok":
                await asyncio.sleep(_SAMPLE_SECONDS)  # a health endpoint can only be polled

    async def until_knows(self, jobs: int) -> None:
        """Return once its metrics count `count` jobs."""
        async with asyncio.timeout(60 + jobs):
            while sum(n for _, n in samples(await self._get("/metrics"), _OWN_JOBS)) < jobs:
                await asyncio.sleep(_SAMPLE_SECONDS)

    async def sample(self) -> None:
        """Sample its memory until cancelled."""
        while True:
            self.peak_bytes = max(self.peak_bytes, self.process.memory_info().rss)
            await asyncio.sleep(_SAMPLE_SECONDS)

    async def _get(self, path: str) -> str:
        with contextlib.suppress(aiohttp.ClientConnectionError):
            async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
                return await answer.text()
        return ""


@contextlib.asynccontextmanager
async def operator(
    kubeconfig: Path, namespace: str, head_url_template: str, log: Path
) -> AsyncIterator[OperatorProcess]:
    """The operator as a child process, for one namespace; ends with the block."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    environment = {
        "PATH": os.environ["PATH"],
        "KUBECONFIG": str(kubeconfig),
        "GRPO_NAMESPACES": namespace,
        "GRPO_HEAD_URL_TEMPLATE": head_url_template,
        "GRPO_LISTEN_PORT": str(port),
        "GRPO_LEADER_ELECTION": "false",
    }
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "grpo_operator", env=environment, stderr=output
        )
    found = OperatorProcess(psutil.Process(process.pid), f"http://127.0.0.1:{port}")
    sampling: asyncio.Task[None] | None = None
    try:
        await found.until_ready()
        sampling = asyncio.create_task(found.sample())
        yield found
    finally:
        if sampling is not None:
            sampling.cancel()
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
