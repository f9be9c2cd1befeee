"""A job from creation to end, on a real API server with the real KubeRay; only Ray itself is a
stand-in.

Aspects: success, progress, children, scaling, suspension, time to live, deletion of
the job or its namespace, namesakes.
"""

import asyncio
import base64
from pathlib import Path

import pytest
from kubernetes.aio import client

from grpo_operator.model.naming import UID_LABEL
from kube.fake_ray import FakeRay
from kube.harness import Cluster, until
from kube.operator_harness import (
    CLUSTERS,
    Jobs,
    Operator,
    condition_of,
    manifest,
    phase_of,
    running_operator,
    start,
)


async def test_a_job_runs_and_succeeds(operator: Operator, jobs: Jobs, ray: FakeRay):
    head = await start(jobs, ray)
    head.report(7, reward=0.123456, samplesPerSecond=12.0, bufferDepth=3)
    running = await jobs.until(lambda job: job["status"]["progress"]["step"] == 7)
    assert running["status"]["metrics"]["reward"] == 0.1235
    assert running["status"]["workers"]["producersReady"] == 2
    assert condition_of(running, "ClusterReady")["status"] == "True"
    head.end(0)
    done = await jobs.until_phase("Succeeded")
    assert condition_of(done, "Complete")["status"] == "True"
    assert "completionTime" in done["status"]
    await jobs.until_gone(CLUSTERS)
    assert (await jobs.get())["status"] == done["status"], "a final status is never written again"
    assert head.attempts == [1]
    assert "Running" in {e["reason"] for e in await jobs.events()}


async def test_the_last_step_is_known_however_rarely_progress_is_written(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, tmp_path: Path
):
    log = tmp_path / "operator.log"
    rarely = {"GRPO_STATUS_SECONDS": "3600"}
    async with running_operator(cluster.kubeconfig, jobs.namespace, ray, log, **rarely):
        head = await start(jobs, ray)
        head.say_last_word(step=100)
        await jobs.until(lambda job: job["status"]["progress"]["step"] == 100)
        head.end(0)
        done = await jobs.until_phase("Succeeded")
    assert done["status"]["progress"]["step"] == 100


async def test_the_children_are_as_rendered(operator: Operator, jobs: Jobs, ray: FakeRay):
    head = await start(jobs, ray)
    job, (cluster,) = await jobs.get(), await jobs.clusters()
    name = f"job-{job['metadata']['uid'][:8]}"
    assert cluster["metadata"]["name"] == name == job["status"]["rayClusterName"]
    core = client.CoreV1Api(jobs.api)
    secret = await core.read_namespaced_secret(f"{name}-token", jobs.namespace)
    assert head.token == base64.b64decode(secret.data["token"]).decode()
    claim = await core.read_namespaced_persistent_volume_claim(name, jobs.namespace)
    assert not claim.metadata.owner_references, "the claim outlives the job"
    own = {"label_selector": f"{UID_LABEL}={job['metadata']['uid']}"}
    (config,) = (await core.list_namespaced_config_map(jobs.namespace, **own)).items
    assert set(config.data) == {"spec.json", "resolved.json", "drain.py", "collect.py"}
    assert config.immutable
    (policy,) = (
        await client.NetworkingV1Api(jobs.api).list_namespaced_network_policy(jobs.namespace, **own)
    ).items
    assert policy.spec.pod_selector.match_labels == {UID_LABEL: job["metadata"]["uid"]}
    service = await core.read_namespaced_service(f"{name}-head-svc", jobs.namespace)
    ports = {port.name: port.port for port in service.spec.ports}
    wanted = {"gcs-server": 6379, "dashboard": 8265, "client": 10001, "driver": 9464}
    assert wanted.items() <= ports.items()


async def test_a_job_with_the_longest_name_runs(operator: Operator, jobs: Jobs, ray: FakeRay):
    name = "a" * 44
    await jobs.create(manifest(name))
    await jobs.until_phase("Running", name)
    (cluster,) = await jobs.clusters()
    assert list(ray.heads) == [cluster["status"]["head"]["serviceName"]]


async def test_producers_scale_while_the_run_continues(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    await jobs.patch({"producers": {"replicas": 4}})
    scaled = await jobs.until(lambda job: job["status"]["workers"]["producersReady"] == 4)
    assert phase_of(scaled) == "Running"
    scale = await client.CustomObjectsApi(jobs.api).get_namespaced_custom_object_scale(
        "grpo-operator.io", "v1alpha1", jobs.namespace, "grpojobs", "job"
    )
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (4, 4)
    selected = await client.CoreV1Api(jobs.api).list_namespaced_pod(
        jobs.namespace, label_selector=scale["status"]["selector"]
    )
    assert len(selected.items) == 4
    await jobs.patch({"producers": {"replicas": 1}})
    await jobs.until(lambda job: job["status"]["workers"]["producersReady"] == 1)
    assert head.attempts == [1]


async def test_a_suspended_run_drains_frees_its_pods_and_resumes(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    await jobs.patch({"suspend": True})
    suspended = await jobs.until_phase("Suspended")
    assert head.asked == ["drain"]
    assert suspended["status"]["restarts"] == 0
    assert await jobs.clusters() == []
    assert await jobs.pods() == []
    await jobs.patch({"suspend": False})
    await head.until_running(attempt=2)
    running = await jobs.until_phase("Running")
    assert condition_of(running, "Suspended")["status"] == "False"


async def test_a_job_suspended_at_birth_creates_nothing(operator: Operator, jobs: Jobs):
    await jobs.create(manifest(suspend=True))
    await jobs.until_phase("Suspended")
    assert await jobs.clusters() == []
    await jobs.patch({"suspend": False})
    running = await jobs.until_phase("Running")
    assert running["status"]["attempt"] == 1
    assert condition_of(running, "Suspended")["status"] == "False"


async def test_a_suspension_that_is_revoked_after_a_moment_leaves_a_whole_job(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    await jobs.patch({"suspend": True})
    await jobs.until(lambda job: phase_of(job) in ("Suspending", "Suspended"))
    await jobs.patch({"suspend": False})
    await head.until_running(attempt=2)
    await jobs.until_phase("Running")
    (cluster,) = await jobs.clusters()
    owned = {pod["metadata"]["labels"]["ray.io/cluster"] for pod in await jobs.pods()}
    assert owned == {cluster["metadata"]["name"]}
    assert len(head.active) == 1


async def test_a_suspension_that_is_revoked_before_it_is_seen_leaves_a_whole_job(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray, backoffLimit=0)
    await jobs.patch({"suspend": True})
    await asyncio.sleep(0.05)
    toggled = await jobs.patch({"suspend": False})
    generation = toggled["metadata"]["generation"]
    await jobs.until(
        lambda job: phase_of(job) == "Running" and job["status"]["observedGeneration"] == generation
    )
    (cluster,) = await jobs.clusters()
    pods = await jobs.pods()
    assert {p["metadata"]["labels"]["ray.io/cluster"] for p in pods} == {
        cluster["metadata"]["name"]
    }
    assert len(pods) == 4
    assert len(head.active) == 1


async def test_a_finished_job_is_deleted_after_its_time_to_live(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray, ttlSecondsAfterFinished=2)
    head.end(0)
    await jobs.until_gone()


async def test_a_deleted_job_takes_its_cluster_along_even_without_the_operator(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    await start(jobs, ray)
    job = await jobs.get()
    assert "finalizers" not in job["metadata"]
    assert "annotations" not in job["metadata"]
    operator.kill()
    await operator.process.wait()
    await jobs.delete()
    await jobs.until_gone(CLUSTERS)
    await jobs.until_pods(lambda pods: not pods)


@pytest.mark.parametrize("operator_is", ["up", "down"])
async def test_a_deleted_namespace_goes_with_all_that_runs_in_it(
    operator: Operator, jobs: Jobs, ray: FakeRay, operator_is: str
):
    await start(jobs, ray)
    if operator_is == "down":
        operator.kill()
        await operator.process.wait()
    core = client.CoreV1Api(jobs.api)
    await core.delete_namespace(jobs.namespace)
    named = {"field_selector": f"metadata.name={jobs.namespace}"}
    await until(lambda found: not found, core.list_namespace, timeout=60, **named)
    if operator_is == "up":
        assert operator.process.returncode is None
        assert "Traceback" not in operator.log.read_text()


async def test_a_namesake_gets_children_of_its_own(operator: Operator, jobs: Jobs, ray: FakeRay):
    await start(jobs, ray)
    old = await jobs.get()
    await jobs.delete()
    new = await jobs.create(manifest())
    running = await jobs.until(
        lambda job: job["metadata"]["uid"] == new["metadata"]["uid"] and phase_of(job) == "Running"
    )
    assert running["status"]["attempt"] == 1
    await jobs.until_cluster(
        lambda cluster: cluster["metadata"]["name"] == running["status"]["rayClusterName"]
    )
    assert old["status"]["rayClusterName"] != running["status"]["rayClusterName"]
