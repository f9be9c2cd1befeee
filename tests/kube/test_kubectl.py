"""`kubectl grpo` as a process against the real API server, with the operator beside it.

Aspects: listing, one job's page, the live table, logs, and refusals. The nodes here run nothing, so
logs fail as on a node that is lost.
"""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio import client

from kube.api_proxy import ApiProxy
from kube.fake_ray import FakeRay
from kube.harness import MISSING_IMAGE, Cluster, service_account
from kube.operator_harness import Jobs, Operator, manifest, start
from kube.plugin import Plugin

READ_JOBS = {"apiGroups": ["grpo-operator.io"], "resources": ["grpojobs"], "verbs": ["get", "list"]}


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


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
async def test_the_list_as_data_holds_the_jobs_as_the_api_server_does(
    grpo: Plugin, jobs: Jobs, form: str, load: Callable[[str], Any]
):
    created = await jobs.create(manifest())
    listed = load((await grpo("list", "-o", form)).out)
    assert [item["metadata"]["uid"] for item in listed["items"]] == [created["metadata"]["uid"]]


async def test_a_namespace_without_jobs_is_no_error(grpo: Plugin):
    ended = await grpo("list")
    assert (ended.code, ended.out) == (0, f"no GRPOJobs in namespace {grpo.namespace}\n")


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


async def test_a_job_that_no_operator_serves_is_reported(grpo: Plugin, jobs: Jobs):
    await jobs.create(manifest())
    page = (await grpo("status", "job")).out
    assert f"does it serve namespace {jobs.namespace}?" in page


async def test_a_wrong_name_is_answered_with_similar_names(grpo: Plugin, jobs: Jobs):
    await jobs.create(manifest("quickstart"))
    error = await grpo.refused("status", "quickstrat")
    assert error == (
        f"error: no GRPOJob 'quickstrat' in namespace {jobs.namespace}; did you mean quickstart?\n"
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


async def test_an_api_server_that_does_not_serve_the_kind_is_reported(
    grpo: Plugin, cluster: Cluster, proxy: ApiProxy, tmp_path: Path
):
    proxy.fault = lambda call: 404 if call.resource == "grpojobs" else None
    through = Plugin(proxy.kubeconfig(cluster.kubeconfig, tmp_path / "config"), grpo.namespace)
    for words in (("list",), ("status", "job")):
        error = await through.refused(*words)
        assert "grpojobs.grpo-operator.io" in error
        assert "the API server does not serve this kind" in error


async def test_the_log_of_a_job_without_pods_says_that_it_is_gone(grpo: Plugin, jobs: Jobs):
    await jobs.create(manifest(suspend=True))
    error = await grpo.refused("logs", "job")
    assert "the job has no head pod (phase Pending)" in error


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
