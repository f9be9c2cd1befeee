"""`kubectl grpo` against the real API server: changes to a job, and waiting for their effect.

Aspects: suspending and resuming, scaling, changes that are refused, the ends of waiting.
"""

import asyncio
from pathlib import Path

from kube.api_proxy import ApiProxy, Call
from kube.fake_ray import FakeRay
from kube.harness import Cluster
from kube.operator_harness import Jobs, Operator, manifest, start
from kube.plugin import Plugin


async def test_a_job_is_suspended_and_resumed(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay
):
    await start(jobs, ray)
    assert (await grpo("suspend", "job")).out == "job: suspending\n"
    assert (await grpo("wait", "job", "--for", "Suspended", "--timeout", "40s")).code == 0
    again = await grpo("suspend", "job")
    assert (again.code, again.out) == (0, "job: suspend is already true, phase Suspended\n")
    assert (await grpo("resume", "job")).out == "job: resuming\n"
    assert (await grpo("wait", "job", "--for", "Running", "--timeout", "40s")).code == 0


async def test_producers_are_scaled(grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay):
    await start(jobs, ray)
    assert (await grpo("scale", "job", "3")).out == "job: producers 2 -> 3\n"
    await jobs.until(lambda job: job["status"]["workers"]["producersReady"] == 3)


async def test_a_number_of_producers_that_the_spec_forbids_is_refused(grpo: Plugin, jobs: Jobs):
    await jobs.create(
        manifest(producers={"accelerator": "cpu", "replicas": 3, "minAvailable": 2}, suspend=True)
    )
    assert "minAvailable" in await grpo.refused("scale", "job", "1")


async def test_a_queued_jobs_producers_are_not_scaled(grpo: Plugin, jobs: Jobs):
    await jobs.create(manifest(queueName="team"))
    assert "Kueue reserved quota for 2 of them" in await grpo.refused("scale", "job", "3")
    await grpo("suspend", "job")
    assert (await grpo("scale", "job", "3")).out == "job: producers 2 -> 3\n"


async def test_a_job_that_has_ended_is_not_changed(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    head.end(0)
    await jobs.until_phase("Succeeded")
    for words in (("suspend", "job"), ("resume", "job"), ("scale", "job", "3")):
        assert "the job has ended (Succeeded)" in await grpo.refused(*words)


async def test_waiting_ends_with_the_phase(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    async with grpo.running("wait", "job", "--timeout", "40s") as waiting:
        head.end(0)
        out, _ = await asyncio.wait_for(waiting.communicate(), 40)
    assert waiting.returncode == 0
    assert out.startswith(b"job: Succeeded at step 0")


async def test_waiting_for_a_phase_that_cannot_follow_ends_with_code_3(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    head.end(64, "no data")
    ended = await grpo("wait", "job", "--timeout", "40s")
    assert ended.code == 3
    assert ended.err.startswith("error: job: Failed at step 0 (BadInput: ")
    assert ended.err.endswith("; not Succeeded\n")


async def test_waiting_for_a_job_that_is_deleted_ends_with_code_3(
    grpo: Plugin, cluster: Cluster, jobs: Jobs, proxy: ApiProxy, tmp_path: Path
):
    await jobs.create(manifest(suspend=True))
    watched = asyncio.Event()

    def seen(call: Call) -> None:
        if call.verb == "watch":
            watched.set()

    proxy.fault = seen
    through = Plugin(proxy.kubeconfig(cluster.kubeconfig, tmp_path / "config"), grpo.namespace)
    async with through.running("wait", "job", "--timeout", "40s") as waiting:
        await asyncio.wait_for(watched.wait(), 40)
        await jobs.delete()
        _, err = await asyncio.wait_for(waiting.communicate(), 40)
    assert (waiting.returncode, err) == (3, b"error: job: the job was deleted\n")


async def test_waiting_too_long_ends_with_code_4(grpo: Plugin, jobs: Jobs):
    await jobs.create(manifest(suspend=True))
    ended = await grpo("wait", "job", "--timeout", "1s")
    assert (ended.code, ended.err) == (
        4,
        "error: not Succeeded within 1s: job: Pending at step 0\n",
    )
