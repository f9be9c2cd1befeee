"""Upgrades below a running job, on a real API server with the real KubeRay; Ray itself is a fake.

Aspects: another default image; a definition with a field more, and back; a definition that is
deleted and installed again; a namespace that is deleted.
"""

import copy
from pathlib import Path

import yaml
from kubernetes.aio import client

from kube.fake_ray import FakeRay
from kube.harness import Cluster, until
from kube.operator_harness import (
    CLUSTERS,
    DEFINITION,
    Jobs,
    Operator,
    condition_of,
    install_definition,
    manifest,
    running_operator,
    start,
    update_definition,
)


async def images(jobs: Jobs) -> set[str]:
    """The images of the pods."""
    return {c["image"] for pod in await jobs.pods() for c in pod["spec"]["containers"]}


async def test_a_new_default_image_does_not_change_a_run(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, tmp_path: Path
):
    log = tmp_path / "operator.log"
    where = (cluster.kubeconfig, jobs.namespace, ray, log)
    async with running_operator(*where, GRPO_TRAINER_IMAGE="trainer:1"):
        head = await start(jobs, ray)
        recorded = await jobs.until(lambda job: len(job["status"]["images"]) == 3)
    assert {i["image"] for i in recorded["status"]["images"]} == {"trainer:1"}
    async with running_operator(*where, GRPO_TRAINER_IMAGE="trainer:2") as operator:
        await operator.until_ready()
        (old,) = await jobs.clusters()
        head.restart()
        group, version, plural = CLUSTERS
        await client.CustomObjectsApi(jobs.api).delete_namespaced_custom_object(
            group, version, jobs.namespace, plural, old["metadata"]["name"]
        )
        await head.until_running(attempt=2)
        assert await images(jobs) == {"trainer:1"}
        (new,) = await jobs.clusters()
        assert new["metadata"]["uid"] != old["metadata"]["uid"]
        await jobs.create(manifest("later"))
        await jobs.until_phase("Running", "later")
        assert await images(jobs) == {"trainer:1", "trainer:2"}


async def test_a_newer_definition_and_its_rollback_do_not_touch_a_run(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    definition = yaml.safe_load(DEFINITION.read_text())
    newer = copy.deepcopy(definition)
    spec = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["later"] = {"type": "string", "default": "set"}
    head = await start(jobs, ray)
    (before,) = await jobs.clusters()
    try:
        await update_definition(jobs.api, newer)
        await jobs.patch({"backoffLimit": 5})
        assert (await jobs.get())["spec"]["later"] == "set"
        head.report(step=1)
        upgraded = await jobs.until(lambda job: job["status"]["progress"]["step"] == 1)
    finally:
        await update_definition(jobs.api, definition)
    head.report(step=2)
    rolled_back = await jobs.until(lambda job: job["status"]["progress"]["step"] == 2)
    for job in (upgraded, rolled_back):
        assert job["status"]["phase"] == "Running"
        assert condition_of(job, "Accepted")["status"] == "True"
        assert job["status"]["attempt"] == 1
    (after,) = await jobs.clusters()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert (head.attempts, head.stops, head.asked) == ([1], [], [])


async def test_after_the_definition_is_deleted_and_installed_again_jobs_run(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    await start(jobs, ray)
    extensions = client.ApiextensionsV1Api(jobs.api)
    name = "grpojobs.grpo-operator.io"
    await extensions.delete_custom_resource_definition(name)
    await until(
        lambda found: not found,
        extensions.list_custom_resource_definition,
        field_selector=f"metadata.name={name}",
        timeout=60,
    )
    # Its jobs went with it, and their clusters with them.
    await jobs.until_gone(CLUSTERS)
    ray.heads.clear()
    await install_definition(jobs.api)
    await jobs.create(manifest("next"))
    await jobs.until_phase("Running", "next", timeout=90)
    assert operator.process.returncode is None


async def test_a_deleted_namespace_disturbs_no_other(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, tmp_path: Path
):
    core = client.CoreV1Api(jobs.api)
    other = f"{jobs.namespace}-other"
    await core.create_namespace({"metadata": {"name": other}})
    log = tmp_path / "operator.log"
    served = f"{jobs.namespace},{other}"
    own = {"POD_NAMESPACE": jobs.namespace}
    async with running_operator(cluster.kubeconfig, served, ray, log, **own) as operator:
        await Jobs(jobs.api, other).create(manifest("doomed"))
        await Jobs(jobs.api, other).until_phase("Running", "doomed")
        await jobs.create(manifest())
        await jobs.until_phase("Running")
        await core.delete_namespace(other)
        await until(
            lambda found: not found,
            core.list_namespace,
            field_selector=f"metadata.name={other}",
            timeout=60,
        )
        (head,) = (head for name, head in ray.heads.items() if name.startswith("job-"))
        head.report(step=1)
        job = await jobs.until(lambda job: job["status"]["progress"]["step"] == 1)
        assert (job["status"]["phase"], job["status"]["attempt"]) == ("Running", 1)
        await jobs.create(manifest("next"))
        await jobs.until_phase("Running", "next")
        assert (await operator.get("/healthz"))[0] == 200
        assert operator.process.returncode is None
