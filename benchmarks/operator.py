"""The operator under load: many GRPOJobs at once, compared with as many RayJobs.

    PYTHONPATH=tests .venv/bin/python -m benchmarks.operator [--jobs N,N,...] [--rest-seconds N]

Each N has its own test cluster (see docs/development/test-cluster.md) with the real KubeRay. It
receives GRPOJobs, RayJobs, and GRPOJobs again: the difference of the first and the third shows the
drift of the control plane. Pods run nothing. A stub of Ray answers the operator, so GRPOJobs reach
Running; KubeRay has none to call, so RayJobs are followed until they wait for a submission
(InteractiveMode: Waiting), and GRPOJobs past the same point (ClusterReady).
"""

import argparse
import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from kubernetes.aio import client, config

from grpo_trainer.spec import API_GROUP, API_VERSION, KIND, Phase
from kube.fake_ray import FakeRay
from kube.harness import condition, is_ready, running_cluster, until

from .kube_load import (
    Bench,
    Marks,
    Object,
    OperatorProcess,
    api_server_writes,
    cpu_seconds,
    operator,
    settled,
    watching,
)
from .operator_report import HEAD, Measured, Operated, Restarted, Run, report, rows
from .table import machine, table

ROOT = Path(__file__).parents[1]
JOBS_PER_NODE = 40
JOB_LABEL = f"{API_GROUP}/job"
GRPO = (API_GROUP, "v1alpha1")
RAY = ("ray.io", "v1")


@dataclass(frozen=True, slots=True)
class Counts:
    """Resource usage up to a point in time."""

    writes: Counter[str]
    calls: Counter[str]
    cpu: float
    machine: dict[str, float]

    @classmethod
    async def now(cls, bench: Bench, process: OperatorProcess) -> "Counts":
        writes, calls = await api_server_writes(bench.api), await process.calls()
        return cls(writes, calls, process.cpu_seconds(), cpu_seconds())


async def grpo_jobs(bench: Bench, ray: FakeRay, namespace: str, rest_seconds: float) -> Operated:
    """Measure GRPOJobs, and the operator at rest."""
    await bench.prepare(namespace)
    marks = Marks(_name, {"ready": _cluster_ready, **{p: _in_phase(p) for p in Phase}})
    pods = Marks(_job_and_pod, {"ready": is_ready})
    clusters = Marks(_name, {"ready": _ray_ready})
    watched = {
        f"/apis/{API_VERSION}/namespaces/{namespace}/grpojobs": marks,
        f"/api/v1/namespaces/{namespace}/pods": pods,
        f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters": clusters,
    }
    log = bench.logs / f"operator-{bench.jobs}-{namespace}.log"
    async with (
        operator(bench.kubeconfig, namespace, ray.url_template, log) as process,
        watching(bench.api, watched),
    ):
        before = await Counts.now(bench, process)
        asked = await bench.create(*GRPO, namespace, "grpojobs", _grpo_job())
        created = _now() - min(asked.values())
        await marks.until(Phase.RUNNING, bench.jobs)
        after, busy = await Counts.now(bench, process), psutil.getloadavg()[0]
        ready = await clusters.until("ready", bench.jobs) - min(asked.values())
        await settled(bench.api)
        rest = await Counts.now(bench, process)
        await asyncio.sleep(rest_seconds)
        rested = await Counts.now(bench, process)
    return Operated(
        run=Run(
            created,
            ready,
            _since(asked, marks.times["ready"]),
            after.writes - before.writes,
            _spent(before.machine, after.machine),
            busy,
        ),
        running=_since(asked, marks.times[Phase.RUNNING]),
        calls=after.calls - before.calls,
        phases=sum(len(marks.times.get(phase, ())) for phase in Phase),
        latencies=_latencies(marks, pods),
        cpu=after.cpu - before.cpu,
        rest_seconds=rest_seconds,
        rest_cpu=rested.cpu - rest.cpu,
        rest_calls=rested.calls - rest.calls,
        rest_writes=rested.writes - rest.writes,
        peak_bytes=process.peak_bytes,
    )


async def restarted(bench: Bench, ray: FakeRay, namespace: str) -> Restarted:
    """Measure an operator that starts while all jobs are Running."""
    writes, start = await api_server_writes(bench.api), _now()
    log = bench.logs / f"operator-{bench.jobs}-{namespace}-restarted.log"
    async with operator(bench.kubeconfig, namespace, ray.url_template, log) as process:
        await process.until_knows(bench.jobs)
        seconds, cpu = _now() - start, process.cpu_seconds()
        await settled(bench.api)
    written = await api_server_writes(bench.api) - writes
    return Restarted(seconds, cpu, process.peak_bytes, written)


async def ray_jobs(bench: Bench, namespace: str, cluster: Object) -> Run:
    """Measure RayJobs with the same RayClusters."""
    await bench.prepare(namespace)
    marks = Marks(_name, {"ready": lambda job: _status(job, "jobDeploymentStatus") == "Waiting"})
    clusters = Marks(_name, {"ready": _ray_ready})
    # As with GRPOJobs, so that both have the same watches.
    pods = Marks(_name, {"ready": is_ready})
    root = f"/apis/ray.io/v1/namespaces/{namespace}"
    watched = {
        f"{root}/rayjobs": marks,
        f"/api/v1/namespaces/{namespace}/pods": pods,
        f"{root}/rayclusters": clusters,
    }
    spec = {
        "submissionMode": "InteractiveMode",
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": 0,
        "shutdownAfterJobFinishes": False,
        "rayClusterSpec": cluster,
    }
    body = {"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": spec}
    async with watching(bench.api, watched):
        before, machine = await api_server_writes(bench.api), cpu_seconds()
        asked = await bench.create(*RAY, namespace, "rayjobs", body)
        created = _now() - min(asked.values())
        await marks.until("ready", bench.jobs)
        after, busy = await api_server_writes(bench.api), psutil.getloadavg()[0]
        cpu = _spent(machine, cpu_seconds())
        ready = await clusters.until("ready", bench.jobs) - min(asked.values())
    return Run(created, ready, _since(asked, marks.times["ready"]), after - before, cpu, busy)


async def measure(jobs: int, rest_seconds: float, state: Path) -> Measured:
    """Measure all three on one new control plane, each within a deadline."""
    nodes = ("--nodes", str(2 + 2 * jobs // JOBS_PER_NODE))
    deadline = 180 + 4.0 * jobs
    with running_cluster(state / str(jobs), *nodes) as cluster:
        api = await config.new_client_from_config(str(cluster.kubeconfig))
        async with api, FakeRay.serve() as ray:
            await _install(api)
            bench = Bench(api, cluster.kubeconfig, jobs, state)
            async with asyncio.timeout(deadline + rest_seconds):
                first = await grpo_jobs(bench, ray, "first", rest_seconds)
                restart = await restarted(bench, ray, "first")
            spec = await _cluster_of(bench, "first")
            async with asyncio.timeout(deadline):
                await bench.clear(*GRPO, "first", "grpojobs")
                theirs = await ray_jobs(bench, "rayjobs", spec)
            async with asyncio.timeout(deadline + rest_seconds):
                await bench.clear(*RAY, "rayjobs", "rayjobs")
                second = await grpo_jobs(bench, ray, "second", rest_seconds)
    return Measured(jobs, first, restart, theirs, second)


async def _install(api: client.ApiClient) -> None:
    extensions = client.ApiextensionsV1Api(api)
    definition = yaml.safe_load((ROOT / "crds" / "grpojobs.yaml").read_text())
    await extensions.create_custom_resource_definition(definition)
    name = definition["metadata"]["name"]
    await until(
        lambda found: any(condition(item, "Established") == "True" for item in found),
        extensions.list_custom_resource_definition,
        field_selector=f"metadata.name={name}",
    )


async def _cluster_of(bench: Bench, namespace: str) -> Object:
    """The spec of a RayCluster as the operator renders it."""
    found = await bench.custom.list_namespaced_custom_object(*RAY, namespace, "rayclusters")
    spec: Object = found["items"][0]["spec"]
    return spec


def _grpo_job() -> Object:
    cpu: dict[str, Any] = {"accelerator": "cpu"}
    spec = {
        "storage": {"claimName": "shared"},
        "producers": cpu | {"replicas": 2, "minAvailable": 2},
        "consumers": cpu | {"replicas": 1},
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "spec": spec}


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def _job_and_pod(pod: Object) -> str:
    return f"{pod['metadata']['labels'][JOB_LABEL]}/{_name(pod)}"


def _status(item: Object, field: str) -> Any:
    return item.get("status", {}).get(field)


def _cluster_ready(job: Object) -> bool:
    return condition(job, "ClusterReady") == "True"


def _ray_ready(cluster: Object) -> bool:
    return bool(_status(cluster, "state") == "ready")


def _in_phase(phase: Phase) -> Callable[[Object], bool]:
    return lambda job: bool(_status(job, "phase") == phase)


def _since(asked: Mapping[str, float], reached: Mapping[str, float]) -> tuple[float, ...]:
    return tuple(reached[name] - time for name, time in asked.items())


def _latencies(marks: Marks, pods: Marks) -> tuple[float, ...]:
    last: dict[str, float] = {}
    for key, time in pods.times["ready"].items():
        job = key.partition("/")[0]
        last[job] = max(last.get(job, 0.0), time)
    return tuple(time - last[job] for job, time in marks.times["ready"].items())


def _spent(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {name: after[name] - seconds for name, seconds in before.items()}


def _now() -> float:
    return asyncio.get_running_loop().time()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", default="100,300,1000", help="default: %(default)s")
    parser.add_argument("--rest-seconds", type=float, default=60, help="default: %(default)s")
    parser.add_argument("--logs", type=Path, help="keep the operator's logs here")
    options = parser.parse_args(arguments)
    print(machine("kopf", "kubernetes"), flush=True)
    found: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for jobs in map(int, options.jobs.split(",")):
            state = options.logs or Path(temporary)
            measured = asyncio.run(measure(jobs, options.rest_seconds, state))
            found += rows(measured)
            report(measured)
            # The table of all sizes so far: the next size may be too large for the machine.
            print(table(HEAD, found), flush=True)


if __name__ == "__main__":
    main()
