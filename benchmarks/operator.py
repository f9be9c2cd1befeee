"""The operator under load: many GRPOJobs at once, against as many RayJobs of the same shape.

    PYTHONPATH=tests .venv/bin/python -m benchmarks.operator [--jobs N,N,...] [--rest-seconds N]

Each N has a test cluster of its own (see docs/development/test-cluster.md) with the real KubeRay.
No pod runs anything there. A stand-in for Ray answers the operator, so GRPOJobs come to Running;
KubeRay has none to speak to, so RayJobs are followed to the moment before they would submit
(InteractiveMode: Waiting), and GRPOJobs past the same point. GRPOJobs go first, on the colder
control plane.
"""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
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
    operator,
    settled,
    watching,
)
from .table import load, machine, table

ROOT = Path(__file__).parents[1]
PODS = 4
JOBS_PER_NODE = 40
JOB_LABEL = f"{API_GROUP}/job"
GRPO, RAY = "grpojobs", "rayjobs"
"""Namespaces, and plurals of the kinds."""
CLUSTERS = "/apis/ray.io/v1/namespaces/{}/rayclusters"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """How many jobs of one kind fared. Seconds are from the first creation."""

    created: float
    clusters_ready: float
    job_ready: float
    """The job's own status says so."""
    writes: Counter[str]
    """API server's count, by anybody, up to the last job's readiness."""
    load: float
    """Load average of the last minute, at that moment."""


@dataclass(frozen=True, slots=True)
class Operated:
    """What only the operator is asked."""

    run: Run
    running: float
    own_writes: Counter[str]
    transitions: int
    latencies: tuple[float, ...]
    """Seconds from a job's last pod being Ready to its status telling so."""
    cpu_seconds: float
    rest_cpu_seconds: float
    rest_writes: Counter[str]
    peak_bytes: int


async def grpo_jobs(bench: Bench, ray: FakeRay, rest_seconds: float) -> tuple[Operated, Object]:
    """Measure GRPOJobs; also returns the spec of a RayCluster of theirs."""
    await bench.prepare(GRPO)
    marks = Marks(_name, {"ready": _cluster_ready, **{p: _in_phase(p) for p in Phase}})
    pods = Marks(_job_and_pod, {"ready": is_ready})
    clusters = Marks(_name, {"ready": _ray_ready})
    watched = {
        f"/apis/{API_VERSION}/namespaces/{GRPO}/{GRPO}": marks,
        f"/api/v1/namespaces/{GRPO}/pods": pods,
        CLUSTERS.format(GRPO): clusters,
    }
    log = bench.logs / f"operator-{bench.jobs}.log"
    async with (
        operator(bench.kubeconfig, GRPO, ray.url_template, log) as process,
        watching(bench.api, watched),
    ):
        before, own, cpu = await _counts(bench, process)
        began = await bench.create(API_GROUP, "v1alpha1", GRPO, _grpo_job())
        created = _now() - began
        running = await marks.until(Phase.RUNNING, bench.jobs)
        after, own_after, cpu_after = await _counts(bench, process)
        busy = psutil.getloadavg()[0]
        run = Run(
            created,
            await clusters.until("ready", bench.jobs) - began,
            await marks.until("ready", bench.jobs) - began,
            after - before,
            busy,
        )
        await settled(bench.api)
        rested, _, rest_cpu = await _counts(bench, process)
        await asyncio.sleep(rest_seconds)
        rested_after, _, rest_cpu_after = await _counts(bench, process)
        found = await bench.custom.list_namespaced_custom_object(
            "ray.io", "v1", GRPO, "rayclusters"
        )
        operated = Operated(
            run,
            running - began,
            own_after - own,
            sum(len(marks.times.get(phase, ())) for phase in Phase),
            _latencies(marks, pods),
            cpu_after - cpu,
            rest_cpu_after - rest_cpu,
            rested_after - rested,
            process.peak_bytes,
        )
    return operated, found["items"][0]["spec"]


async def ray_jobs(bench: Bench, cluster: Object) -> Run:
    """Measure RayJobs with the same RayClusters."""
    await bench.prepare(RAY)
    marks = Marks(_name, {"ready": lambda job: _status(job, "jobDeploymentStatus") == "Waiting"})
    clusters = Marks(_name, {"ready": _ray_ready})
    watched = {f"/apis/ray.io/v1/namespaces/{RAY}/{RAY}": marks, CLUSTERS.format(RAY): clusters}
    spec = {
        "submissionMode": "InteractiveMode",
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": 0,
        "shutdownAfterJobFinishes": False,
        "rayClusterSpec": cluster,
    }
    body = {"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": spec}
    async with watching(bench.api, watched):
        before = await api_server_writes(bench.api)
        began = await bench.create("ray.io", "v1", RAY, body)
        created = _now() - began
        ready = await marks.until("ready", bench.jobs)
        after, busy = await api_server_writes(bench.api), psutil.getloadavg()[0]
        clusters_ready = await clusters.until("ready", bench.jobs)
    return Run(created, clusters_ready - began, ready - began, after - before, busy)


async def measure(jobs: int, rest_seconds: float, state: Path) -> tuple[Operated, Run]:
    """Both kinds on one new control plane, each within a deadline."""
    nodes = ("--nodes", str(2 + 2 * jobs // JOBS_PER_NODE))
    deadline = 180 + 4.0 * jobs
    with running_cluster(state / str(jobs), *nodes) as cluster:
        api = await config.new_client_from_config(str(cluster.kubeconfig))
        async with api, FakeRay.serve() as ray:
            await _install(api)
            bench = Bench(api, cluster.kubeconfig, jobs, state)
            async with asyncio.timeout(deadline + rest_seconds):
                operated, spec = await grpo_jobs(bench, ray, rest_seconds)
            async with asyncio.timeout(deadline):
                await _clear(bench)
                return operated, await ray_jobs(bench, spec)


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


async def _clear(bench: Bench) -> None:
    """Delete the GRPOJobs and wait until their pods are gone too."""
    await bench.custom.delete_collection_namespaced_custom_object(API_GROUP, "v1alpha1", GRPO, GRPO)
    core = client.CoreV1Api(bench.api)
    await until(lambda pods: not pods, core.list_namespaced_pod, GRPO, timeout=60 + bench.jobs)


async def _counts(
    bench: Bench, process: OperatorProcess
) -> tuple[Counter[str], Counter[str], float]:
    return await api_server_writes(bench.api), await process.writes(), process.cpu_seconds()


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


def _latencies(marks: Marks, pods: Marks) -> tuple[float, ...]:
    last: dict[str, float] = {}
    for key, time in pods.times["ready"].items():
        job = key.partition("/")[0]
        last[job] = max(last.get(job, 0.0), time)
    return tuple(time - last[job] for job, time in marks.times["ready"].items())


def _now() -> float:
    return asyncio.get_running_loop().time()


def _per_job(count: Counter[str], jobs: int, resource: str = "") -> str:
    total = sum(n for name, n in count.items() if name.startswith(resource))
    return f"{total / jobs:.2f}"


def _rows(jobs: int, operated: Operated, ray: Run) -> list[tuple[str, str, str, str]]:
    run = operated.run
    percent = quantiles(operated.latencies, n=100, method="inclusive")
    p50, p95, p99 = (percent[i - 1] for i in (50, 95, 99))
    rest = ", ".join(f"{name} {n}" for name, n in operated.rest_writes.items())
    status = operated.run.writes[f"{GRPO}/status"]

    def both(what: str, ours: float, theirs: float) -> tuple[str, str, str, str]:
        return what, f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.2f}"

    return [
        both("all created, s", run.created, ray.created),
        both("all RayClusters ready, s", run.clusters_ready, ray.clusters_ready),
        both("all jobs know it, s", run.job_ready, ray.job_ready),
        ("load average then", f"{run.load:.1f}", f"{ray.load:.1f}", "-"),
        ("all Running, s", f"{operated.running:.1f}", "-", "-"),
        ("writes a job, by all", _per_job(run.writes, jobs), _per_job(ray.writes, jobs), "-"),
        (
            "  of the job object",
            _per_job(run.writes, jobs, GRPO),
            _per_job(ray.writes, jobs, RAY),
            "-",
        ),
        ("  by the operator", _per_job(operated.own_writes, jobs), "-", "-"),
        ("status writes a change of phase", f"{status / operated.transitions:.2f}", "-", "-"),
        ("pod ready to status p50/95/99, s", f"{p50:.2f}/{p95:.2f}/{p99:.2f}", "-", "-"),
        ("operator CPU to Running, s", f"{operated.cpu_seconds:.1f}", "-", "-"),
        ("operator CPU at rest, s", f"{operated.rest_cpu_seconds:.1f}", "-", "-"),
        ("operator peak RSS, MiB", f"{operated.peak_bytes / MIB:.0f}", "-", "-"),
        ("writes at rest", rest or "0", "-", "-"),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", default="100,300,1000", help="default: %(default)s")
    parser.add_argument("--rest-seconds", type=float, default=60, help="default: %(default)s")
    parser.add_argument("--logs", type=Path, help="keep the operator's logs here")
    options = parser.parse_args(arguments)
    print(machine("kopf", "kubernetes"), flush=True)
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for jobs in map(int, options.jobs.split(",")):
            state = options.logs or Path(temporary)
            operated, ray = asyncio.run(measure(jobs, options.rest_seconds, state))
            rows += [(str(jobs), *row) for row in _rows(jobs, operated, ray)]
            print(f"{jobs} jobs: {load()}", file=sys.stderr, flush=True)
            for what, count in (("GRPOJob", operated.run.writes), ("RayJob", ray.writes)):
                print(what, dict(count), file=sys.stderr)
            print("own", dict(operated.own_writes), file=sys.stderr, flush=True)
    print(table(("jobs", "", "GRPOJob", "RayJob", "ratio"), rows))


if __name__ == "__main__":
    main()
