"""Jobs of the end-to-end tests: a small quickstart, and conditions to wait for."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.deployment import ROOT, Deployment, merged
from e2e.stages import Timings
from kube.harness import Object, is_ready
from kube.operator_harness import Jobs, condition_of, phase_of

STEADY = "steady"
"""The job of the session, which trains without an end for tests that need one and leave it so."""
START_SECONDS = 600
"""From creation to the first step, on a machine of two CPUs."""
_ONE_THREAD = {"name": "OMP_NUM_THREADS", "value": "1"}
_REQUESTS, _LIMITS = {"cpu": "100m", "memory": "512Mi"}, {"memory": "8Gi"}
_SMALL = {"resources": {"requests": _REQUESTS, "limits": _LIMITS}}


def quickstart(name: str, **changes: Any) -> Object:
    """The quickstart with small requests and `changes` of its spec."""
    manifest = yaml.safe_load((ROOT / "examples" / "quickstart.yaml").read_text())
    small = {"head": _SMALL, "producers": _SMALL, "consumers": _SMALL, "env": [_ONE_THREAD]}
    changed = {"metadata": {"name": name}, "spec": merged(small, dict(changes))}
    job: Object = merged(manifest, changed)
    return job


def with_model_of(directory: Path, manifest: Object) -> Object:
    """The manifest with `directory` of this machine as the place where the built-in model is kept.

    Making the model takes a minute or more of a CPU, and one is as good as the next.
    """
    mount = {"name": "models", "mountPath": "/data/cache"}
    pod = {
        "volumes": [{"name": "models", "hostPath": {"path": str(directory)}}],
        "containers": [{"name": "ray", "volumeMounts": [mount]}],
    }
    pools = {pool: {"podTemplate": {"spec": pod}} for pool in ("head", "producers", "consumers")}
    job: Object = merged(manifest, {"spec": pools})
    return job


def endless(name: str, **changes: Any) -> Object:
    """A job that trains until it is stopped, with a checkpoint every five steps."""
    lasting = {"numEpisodes": 10000, "maxSteps": 100000, "checkpoint": {"interval": 5}}
    return quickstart(name, **merged(lasting | {"evaluation": {"interval": 0}}, changes))


@dataclass(frozen=True)
class Runs:
    """The jobs of a namespace."""

    deployment: Deployment
    jobs: Jobs
    timings: Timings

    @property
    def namespace(self) -> str:
        return self.jobs.namespace

    async def start(self, manifest: Object, *, own_model: bool = False) -> Object:
        """Applies a manifest and takes the time of each stage, up to the job's first step."""
        name = manifest["metadata"]["name"]
        stopwatch = self.timings.begin(name)
        self.apply(manifest, own_model=own_model)
        await self.jobs.until_pods(
            lambda pods: any(_is_head_of(pod, name) and is_ready(pod) for pod in pods),
            timeout=START_SECONDS,
        )
        stopwatch.reach("head ready")
        await self.until(name, lambda job: condition_of(job, "ClusterReady")["status"] == "True")
        stopwatch.reach("all pods ready")
        await self.until(name, lambda job: phase_of(job) in ("Running", "Succeeded"))
        stopwatch.reach("driver runs")
        job = await self.until_step(name, 1)
        stopwatch.reach("first step")
        return job

    def apply(self, manifest: Object, *, own_model: bool = False) -> None:
        """Applies a manifest; the job takes the machine's built-in model or makes its own."""
        if not own_model:
            manifest = with_model_of(self.deployment.models, manifest)
        self.deployment.kubectl("apply", "-n", self.namespace, "-f", "-", given=manifest)

    async def until(
        self, name: str, holds: Callable[[Object], Any], timeout: float = START_SECONDS
    ) -> Object:
        """The job once `holds` of it, or an error as soon as it has failed."""
        job = await self.jobs.until(
            lambda job: bool(holds(job)) or phase_of(job) == "Failed", name, timeout
        )
        assert holds(job), yaml.safe_dump(job["status"])
        return job

    async def until_step(self, name: str, step: int, timeout: float = START_SECONDS) -> Object:
        return await self.until(name, lambda job: step_of(job) >= step, timeout)

    async def pod(self, name: str, role: str) -> str:
        """The name of the one pod of a job that has this role."""
        pods = [p for p in await self.jobs.pods() if _is_role(p, name, role)]
        assert len(pods) == 1, [p["metadata"]["name"] for p in pods]
        return str(pods[0]["metadata"]["name"])

    def steps(self, job: Object) -> list[int]:
        """Every step that the run has written down, in the order it did them."""
        return [row["grpo_step"] for row in self.metrics(job)]

    def newest_checkpoint(self, job: Object) -> int:
        """The step of the newest complete checkpoint on the volume."""
        found = (self.deployment.run_directory(job) / "checkpoints").glob("step-*/COMPLETE")
        return max(int(path.parent.name.removeprefix("step-")) for path in found)

    def metrics(self, job: Object) -> list[Object]:
        """The rows of steps."""
        path = self.deployment.run_directory(job) / "metrics.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return [row for row in rows if row["event"] == "step"]


def step_of(job: Object) -> int:
    return int(job.get("status", {}).get("progress", {}).get("step", 0))


def checkpoint_of(job: Object) -> int:
    """The step of the newest checkpoint, 0 without one."""
    return int(job.get("status", {}).get("checkpoint", {}).get("step", 0))


def _is_head_of(pod: Object, job: str) -> bool:
    return _is_role(pod, job, "head")


def _is_role(pod: Object, job: str, role: str) -> bool:
    labels = pod["metadata"]["labels"]
    return bool(
        labels.get("grpo-operator.io/job") == job and labels.get("grpo-operator.io/role") == role
    )
