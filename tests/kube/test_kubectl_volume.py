"""`kubectl grpo` against the real API server: the pod that reads a job's volume.

Aspects: it is deleted however reading ends; the restricted standard; nothing is overwritten.
Nothing runs on the nodes here, so commands inside the pod fail as on a node that is lost.
"""

import asyncio
import signal
from pathlib import Path

import pytest
from kubernetes.aio import client

from kube.fake_ray import FakeRay
from kube.harness import MISSING_IMAGE
from kube.operator_harness import Jobs, Operator, start
from kube.plugin import Plugin


async def rested(jobs: Jobs, ray: FakeRay) -> None:
    """A job whose volume no pod of its own mounts any more."""
    await start(jobs, ray)
    await jobs.patch({"suspend": True})
    await jobs.until_phase("Suspended")


async def until_enforced(core: client.CoreV1Api, namespace: str) -> None:
    """Waits until a pod without the marks of the restricted standard is refused."""
    plain = {
        "metadata": {"name": "plain"},
        "spec": {"containers": [{"name": "c", "image": "image"}]},
    }
    async with asyncio.timeout(20):
        while True:
            try:
                await core.create_namespaced_pod(namespace, plain, dry_run="All")
            except client.ApiException as error:
                assert "PodSecurity" in str(error.body)
                return
            await asyncio.sleep(0.1)  # the admission plugin learns of the label by and by


async def until_reader(jobs: Jobs) -> None:
    """Waits until the plugin's pod is there."""
    await jobs.until_pods(lambda pods: any("-reader-" in p["metadata"]["name"] for p in pods))


async def test_the_pod_that_reads_a_volume_is_deleted_when_reading_fails(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay
):
    await rested(jobs, ray)
    async with grpo.running("checkpoints", "job") as listing:
        await until_reader(jobs)
        _, err = await asyncio.wait_for(listing.communicate(), 60)
    assert listing.returncode == 1
    assert err.startswith(b"error: refused: get and create pods/exec job-")
    await jobs.until_pods(lambda pods: not pods)


async def test_the_pod_that_reads_a_volume_is_deleted_at_the_timeout(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay, tmp_path: Path
):
    await rested(jobs, ray)
    target = tmp_path / "out"
    words = ("copy-checkpoint", "job", str(target), "--image", MISSING_IMAGE, "--timeout", "4s")
    ended = await grpo(*words)
    assert ended.code == 4
    assert "timed out after 4s" in ended.err
    assert not target.exists()
    await jobs.until_pods(lambda pods: not pods)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_pod_that_reads_a_volume_is_deleted_when_the_user_has_enough(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay, number: signal.Signals
):
    await rested(jobs, ray)
    async with grpo.running("checkpoints", "job", "--image", MISSING_IMAGE) as listing:
        await until_reader(jobs)
        listing.send_signal(number)
        await asyncio.wait_for(listing.communicate(), 40)
    assert listing.returncode == 130
    await jobs.until_pods(lambda pods: not pods)


async def test_the_pod_that_reads_a_volume_needs_no_exception_from_the_restricted_standard(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay
):
    await rested(jobs, ray)
    core = client.CoreV1Api(jobs.api)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await core.patch_namespace(jobs.namespace, {"metadata": {"labels": labels}})
    await until_enforced(core, jobs.namespace)
    async with grpo.running("checkpoints", "job") as listing:
        await until_reader(jobs)
        await asyncio.wait_for(listing.communicate(), 60)


async def test_the_logs_of_pods_that_are_gone_are_read_from_the_volume(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay
):
    await rested(jobs, ray)
    async with grpo.running("logs", "job") as reading:
        await until_reader(jobs)
        _, err = await asyncio.wait_for(reading.communicate(), 60)
    assert err.startswith(b"job: the pods are gone; reading the volume\n")
    assert b"refused: get and create pods/exec job-" in err
    await jobs.until_pods(lambda pods: not pods)


async def test_a_copy_never_overwrites(grpo: Plugin, jobs: Jobs, tmp_path: Path):
    assert "nothing is overwritten" in await grpo.refused("copy-checkpoint", "job", str(tmp_path))
