"""Many jobs at once, on a real API server with the real KubeRay.

Aspects: all jobs run, phases never go back, jobs that are deleted during their start leave nothing.
"""

import asyncio
import random
from pathlib import Path

from kubernetes.aio import client

from kube.fake_ray import FakeRay
from kube.harness import until
from kube.operator_harness import CLUSTERS, JOBS, Jobs, Operator, manifest, phase_of

MANY = 20
ORDER = ["", "Pending", "Starting", "Running", "Succeeded"]
SMALL = {"producers": {"accelerator": "cpu", "replicas": 1}}


async def test_many_jobs_come_to_run_and_none_goes_back(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    names = [f"job-{number}" for number in range(MANY)]
    seen: dict[str, list[str]] = {name: [""] for name in names}

    def all_succeeded(items: list[dict]) -> bool:
        for item in items:
            seen[item["metadata"]["name"]].append(phase_of(item))
        return len(items) == MANY and all(phase_of(item) == "Succeeded" for item in items)

    await asyncio.gather(*(jobs.create(manifest(name, **SMALL)) for name in names))
    listing = client.CustomObjectsApi(jobs.api).list_namespaced_custom_object
    group, version, plural = JOBS

    async def finish_each_once_it_runs() -> None:
        await asyncio.gather(*(jobs.until_phase("Running", name, 200) for name in names))
        for head in ray.heads.values():
            head.end(0)

    finishing = asyncio.create_task(finish_each_once_it_runs())
    await until(all_succeeded, listing, group, version, jobs.namespace, plural, timeout=280)
    await finishing
    for phases in seen.values():
        places = [ORDER.index(phase) for phase in phases]
        assert places == sorted(places)
    assert all(head.attempts == [1] for head in ray.heads.values())
    assert len(ray.heads) == MANY


async def test_jobs_that_are_deleted_at_any_moment_leave_nothing(operator: Operator, jobs: Jobs):
    dice = random.Random(7)

    async def live_for_a_moment(name: str, seconds: float) -> None:
        await jobs.create(manifest(name, **SMALL))
        await asyncio.sleep(seconds)
        await jobs.delete(name)

    moments = [0.0, 0.2, *(dice.uniform(0, 8) for _ in range(MANY - 2))]
    await asyncio.gather(*(live_for_a_moment(f"job-{i}", m) for i, m in enumerate(moments)))
    await jobs.until_gone()
    await jobs.until_gone(CLUSTERS, timeout=100)
    await jobs.until_pods(lambda pods: not pods, timeout=100)
    assert operator.process.returncode is None
    log = Path(operator.log).read_text()
    assert "Traceback" not in log
    assert "ERROR" not in log
