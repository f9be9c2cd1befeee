"""`kubectl grpo` as a process against the real API server, with the operator beside it.

Aspects: listing, one job's page, changes, waiting, watching, refusals, and the pod that reads a
volume. The nodes here run nothing, so commands inside containers fail as on a node that is lost.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from kubernetes.aio import client

from kube.api_proxy import ApiProxy, Call
from kube.fake_ray import FakeRay
from kube.harness import MISSING_IMAGE, Cluster, service_account
from kube.operator_harness import Jobs, Operator, manifest, start

READ_JOBS = {"apiGroups": ["grpo-operator.io"], "resources": ["grpojobs"], "verbs": ["get", "list"]}


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int | None
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, str]]:
        """The table that it printed."""
        header, *lines = (line.split() for line in self.out.splitlines())
        return [dict(zip(header, line, strict=True)) for line in lines]


@dataclass(frozen=True)
class Plugin:
    """The program, as one user in one namespace."""

    kubeconfig: Path
    namespace: str

    async def __call__(self, *words: str) -> Ended:
        async with self.running(*words) as process:
            out, err = await asyncio.wait_for(process.communicate(), 60)
        return Ended(process.returncode, out.decode(), err.decode())

    @contextlib.asynccontextmanager
    async def running(self, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Inside the block it runs."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "grpo_kubectl.cli", "-n", self.namespace, *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "PYTHONUNBUFFERED": "1"},
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def refused(self, *words: str) -> str:
        """The one line of a command that fails."""
        ended = await self(*words)
        assert ended.code == 1, ended
        assert ended.err.startswith("error: "), ended.err
        assert ended.err.count("\n") == 1, ended.err
        return ended.err


@pytest.fixture
def grpo(cluster: Cluster, jobs: Jobs) -> Plugin:
    """The program with all rights."""
    return Plugin(cluster.kubeconfig, jobs.namespace)


async def as_user(api: client.ApiClient, cluster: Cluster, grpo: Plugin, *rules: dict) -> Plugin:
    """The program with the rights of these rules alone."""
    kubeconfig = await service_account(api, cluster, grpo.namespace, rules)
    return Plugin(kubeconfig, grpo.namespace)


async def test_running_jobs_are_listed(grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay):
    head = await start(jobs, ray)
    head.report(12, reward=4.5, samplesPerSecond=405.1)
    await jobs.until(lambda job: job["status"]["progress"]["step"] == 12)
    (row,) = (await grpo("list")).rows
    shown = {"NAME": "job", "PHASE": "Running", "STEP": "12/100", "REWARD": "4.5"}
    assert shown.items() <= row.items()
    (row,) = (await grpo("list", "-o", "wide")).rows
    assert (row["PRODUCERS"], row["CONSUMERS"]) == ("2/2", "1/1")
    everywhere = (await grpo("list", "-A")).rows
    assert jobs.namespace in {row["NAMESPACE"] for row in everywhere}


async def test_the_list_as_json_holds_the_jobs_as_the_api_server_does(grpo: Plugin, jobs: Jobs):
    created = await jobs.create(manifest())
    listed = json.loads((await grpo("list", "-o", "json")).out)
    assert [item["metadata"]["uid"] for item in listed["items"]] == [created["metadata"]["uid"]]


async def test_a_namespace_without_jobs_is_no_error(grpo: Plugin):
    ended = await grpo("list")
    assert (ended.code, ended.out) == (0, "no GRPOJobs in the namespace\n")


async def test_the_page_of_a_running_job_shows_its_pods_and_events(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay
):
    await start(jobs, ray)
    page = (await grpo("status", "job")).out
    assert "Phase:       Running (Running)" in page
    assert "producers 2/2 ready, consumers 1/1 ready" in page
    for pod in await jobs.pods():
        assert pod["metadata"]["name"] in page
    assert re.search("Normal +Running +attempt 1", page)
    assert "kubectl grpo logs job -f" in page


async def test_the_page_of_a_job_that_cannot_start_says_why_and_what_to_do(
    grpo: Plugin, operator: Operator, jobs: Jobs
):
    await jobs.create(manifest(consumers={"accelerator": "cpu", "image": MISSING_IMAGE}))
    page = ""
    async with asyncio.timeout(40):
        while "Starting (ImagePullBackOff)" not in page:
            page = (await grpo("status", "job")).out
    assert MISSING_IMAGE in page
    assert "Check image and imagePullSecrets" in page


async def test_a_job_that_no_operator_serves_says_so(grpo: Plugin, jobs: Jobs):
    await jobs.create(manifest())
    page = (await grpo("status", "job")).out
    assert f"does it serve namespace {jobs.namespace}?" in page


async def test_a_wrong_name_is_answered_by_those_near_it(grpo: Plugin, jobs: Jobs):
    await jobs.create(manifest("quickstart"))
    error = await grpo.refused("status", "quickstrat")
    assert error == (
        f"error: no GRPOJob 'quickstrat' in namespace {jobs.namespace}; did you mean quickstart?\n"
    )


async def test_a_job_is_suspended_and_resumed(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay
):
    await start(jobs, ray)
    assert (await grpo("suspend", "job")).out == "job: suspending\n"
    assert (await grpo("wait", "job", "--for", "Suspended", "--timeout", "40s")).code == 0
    again = await grpo("suspend", "job")
    assert (again.code, again.out) == (0, "job: suspend is true already, phase Suspended\n")
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
    await jobs.create(manifest(queueName="team", suspend=True))
    assert "Kueue reserved its quota for 2 of them" in await grpo.refused("scale", "job", "3")


async def test_a_job_that_is_over_is_not_changed(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    head.end(0)
    await jobs.until_phase("Succeeded")
    for words in (("suspend", "job"), ("resume", "job"), ("scale", "job", "3")):
        assert "it is over (Succeeded)" in await grpo.refused(*words)


async def test_waiting_ends_with_the_phase(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    async with grpo.running("wait", "job", "--timeout", "40s") as waiting:
        head.end(0)
        out, _ = await asyncio.wait_for(waiting.communicate(), 40)
    assert waiting.returncode == 0
    assert out.startswith(b"job: Succeeded at step 0")


async def test_waiting_for_what_will_not_be_ends_with_code_3(
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
    assert (waiting.returncode, err) == (3, b"error: job: it was deleted\n")


async def test_waiting_too_long_ends_with_code_4(grpo: Plugin, jobs: Jobs):
    await jobs.create(manifest(suspend=True))
    ended = await grpo("wait", "job", "--timeout", "1s")
    assert (ended.code, ended.err) == (
        4,
        "error: not Succeeded within 1s: job: Pending at step 0\n",
    )


async def test_the_live_table_follows_a_job_to_its_end(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    async with grpo.running("top", "job", "--timeout", "40s") as watching:
        assert watching.stdout is not None
        await watching.stdout.readline()
        head.end(0)
        rest = await asyncio.wait_for(watching.stdout.read(), 40)
        await watching.wait()
    assert watching.returncode == 0
    phases = [line.split()[1] for line in rest.decode().splitlines() if line.startswith("job ")]
    assert (phases[0], phases[-1]) == ("Running", "Succeeded")
    assert "\x1b" not in rest.decode()


async def test_the_live_table_is_printed_once_when_asked(grpo: Plugin, jobs: Jobs):
    for name in ("b", "a"):
        await jobs.create(manifest(name, suspend=True))
    assert [row["NAME"] for row in (await grpo("top", "--once")).rows] == ["a", "b"]


async def test_a_missing_right_is_named(
    grpo: Plugin, api: client.ApiClient, cluster: Cluster, jobs: Jobs
):
    await jobs.create(manifest(suspend=True))
    nobody = await as_user(api, cluster, grpo)
    where = f"in namespace {jobs.namespace}"
    assert f"not permitted: list grpojobs.grpo-operator.io {where}" in await nobody.refused("list")
    reader = await as_user(api, cluster, grpo, READ_JOBS)
    assert (await reader("list")).code == 0
    for words, right in {
        ("status", "job"): f"list pods {where}",
        ("top",): f"watch grpojobs.grpo-operator.io {where}",
        ("resume", "job"): f"patch grpojobs.grpo-operator.io job {where}",
        ("scale", "job", "3"): f"patch grpojobs/scale.grpo-operator.io job {where}",
        ("checkpoints", "job"): f"list pods {where}",
    }.items():
        assert f"not permitted: {right}" in await _refused_at_last(reader, words)


async def _refused_at_last(user: Plugin, words: Sequence[str]) -> str:
    """What a command fails with that may print something before."""
    ended = await user(*words)
    assert ended.code == 1, ended
    return ended.err


async def test_an_api_server_without_the_kind_is_told(
    grpo: Plugin, cluster: Cluster, proxy: ApiProxy, tmp_path: Path
):
    proxy.fault = lambda call: 404 if call.resource == "grpojobs" else None
    through = Plugin(proxy.kubeconfig(cluster.kubeconfig, tmp_path / "config"), grpo.namespace)
    for words in (("list",), ("status", "job")):
        assert "does not know grpojobs.grpo-operator.io" in await through.refused(*words)


async def test_the_log_of_a_job_without_pods_says_that_it_is_gone(grpo: Plugin, jobs: Jobs):
    await jobs.create(manifest(suspend=True))
    error = await grpo.refused("logs", "job")
    assert "no pod of its head is there (phase Pending)" in error


@pytest.mark.parametrize("role", ["driver", "consumers", "head"])
async def test_a_log_that_cannot_be_read_is_one_line(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay, role: str
):
    await start(jobs, ray)
    assert "refused: " in await grpo.refused("logs", "job", "--role", role)


async def test_each_log_of_a_pool_that_cannot_be_read_names_its_pod(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay
):
    await start(jobs, ray)
    ended = await grpo("logs", "job", "--role", "producers")
    assert ended.code == 1
    for pod in await jobs.pods("producers"):
        assert f"[{pod['metadata']['name']}] refused: " in ended.err


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
    assert err.startswith(b"error: refused: pods/exec ")
    await jobs.until_pods(lambda pods: not pods)


async def test_the_pod_that_reads_a_volume_is_deleted_when_the_time_is_over(
    grpo: Plugin, operator: Operator, jobs: Jobs, ray: FakeRay, tmp_path: Path
):
    await rested(jobs, ray)
    target = tmp_path / "out"
    words = ("copy-checkpoint", "job", str(target), "--image", MISSING_IMAGE, "--timeout", "4s")
    ended = await grpo(*words)
    assert ended.code == 4
    assert "not done within 4s" in ended.err
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


async def test_a_copy_never_overwrites(grpo: Plugin, jobs: Jobs, tmp_path: Path):
    assert "nothing is overwritten" in await grpo.refused("copy-checkpoint", "job", str(tmp_path))
