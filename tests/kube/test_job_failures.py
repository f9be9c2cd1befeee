"""Runs that fail, on a real API server with the real KubeRay; only Ray itself is a fake.

Aspects: failures of the driver, loss of the head or of its node, bad input, limits, deadlines,
stalls.
"""

from kubernetes.aio import client

from kube.fake_ray import FakeRay
from kube.harness import fail_pod, lost_node, restart_containers
from kube.operator_harness import CLUSTERS, Jobs, Operator, condition_of, start


async def test_a_failed_driver_is_started_again_on_the_same_cluster(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    (before,) = await jobs.clusters()
    head.end(1, "Traceback: CUDA out of memory")
    retrying = await jobs.until_phase("Retrying")
    assert (retrying["status"]["attempt"], retrying["status"]["restarts"]) == (2, 1)
    assert "CUDA out of memory" in condition_of(retrying, "Training")["message"]
    await head.until_running(attempt=2)
    await jobs.until_phase("Running")
    (after,) = await jobs.clusters()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    warnings = [e["reason"] for e in await jobs.events() if e["type"] == "Warning"]
    assert "DriverFailed" in warnings


async def test_a_lost_head_costs_the_cluster_and_one_attempt(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    (before,) = await jobs.clusters()
    (pod,) = await jobs.pods("headgroup")
    core = client.CoreV1Api(jobs.api)
    head.restart()
    await core.delete_namespaced_pod(
        pod["metadata"]["name"], jobs.namespace, grace_period_seconds=0
    )
    retrying = await jobs.until_phase("Retrying")
    assert condition_of(retrying, "Training")["reason"] == "HeadLost"
    await head.until_running(attempt=2)
    (after,) = await jobs.clusters()
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert (await jobs.until_phase("Running"))["status"]["restarts"] == 1
    assert head.attempts == [1, 2]


async def test_a_head_out_of_memory_fails_the_job_with_that_cause(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray, backoffLimit=0)
    (pod,) = await jobs.pods("headgroup")
    await restart_containers(
        jobs.api, jobs.namespace, pod["metadata"]["name"], exit_code=137, reason="OOMKilled"
    )
    head.restart()
    failed = await jobs.until_phase("Failed")
    assert condition_of(failed, "Failed")["reason"] == "BackoffLimitExceeded"
    assert "OOMKilled" in condition_of(failed, "Failed")["message"]
    await jobs.until_gone(CLUSTERS)


async def test_an_evicted_head_is_not_counted_as_a_failure(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    (pod,) = await jobs.pods("headgroup")
    head.reachable = False
    await fail_pod(
        jobs.api, jobs.namespace, pod["metadata"]["name"], exit_code=137, pod_reason="Evicted"
    )
    # KubeRay may replace it by a new head, without the attempt, before it is observed.
    head.restart()
    head.reachable = True
    retrying = await jobs.until(lambda job: job["status"]["attempt"] == 2)
    assert condition_of(retrying, "Training")["reason"] == "Evicted"
    await head.until_running(attempt=2)
    running = await jobs.until_phase("Running")
    assert (running["status"]["restarts"], running["status"]["evictions"]) == (0, 1)
    assert head.attempts == [1, 2]


async def test_after_a_lost_node_no_new_pod_meets_an_old_one(
    operator: Operator, jobs: Jobs, ray: FakeRay, node: str
):
    template = {"spec": {"nodeSelector": {"pool": node}, "terminationGracePeriodSeconds": 1}}
    head = await start(jobs, ray, head={"podTemplate": template})
    (before,) = await jobs.pods("headgroup")
    assert before["spec"]["nodeName"] == node
    async with lost_node(jobs.api, node):
        head.reachable = False
        waiting = await jobs.until(
            lambda job: condition_of(job, "ClusterReady")["reason"] == "OldPodsLeaving", timeout=60
        )
        assert node in condition_of(waiting, "ClusterReady")["message"]
        assert waiting["status"]["attempt"] == 2
        await jobs.until_pods(lambda pods: {pod["spec"]["nodeName"] for pod in pods} == {node})
        assert await jobs.clusters() == []
        head.restart()
        head.reachable = True
    await head.until_running(attempt=2)
    running = await jobs.until_phase("Running")
    assert (running["status"]["restarts"], running["status"]["evictions"]) == (0, 1)
    (after,) = await jobs.pods("headgroup")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert head.attempts == [1, 2]


async def test_a_cluster_deleted_by_hand_is_created_again(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    (cluster,) = await jobs.clusters()
    head.restart()
    await client.CustomObjectsApi(jobs.api).delete_namespaced_custom_object(
        *CLUSTERS[:2], jobs.namespace, CLUSTERS[2], cluster["metadata"]["name"]
    )
    retrying = await jobs.until(lambda job: job["status"]["attempt"] == 2)
    assert condition_of(retrying, "Training")["reason"] == "ClusterLost"
    await head.until_running(attempt=2)


async def test_bad_input_fails_at_once(operator: Operator, jobs: Jobs, ray: FakeRay):
    head = await start(jobs, ray)
    head.end(64, "data.jsonl row 3: no gt_answer")
    failed = await jobs.until_phase("Failed")
    assert condition_of(failed, "Failed")["reason"] == "BadInput"
    assert "row 3" in condition_of(failed, "Failed")["message"]
    await jobs.until_gone(CLUSTERS)
    assert head.attempts == [1]


async def test_failures_beyond_the_limit_fail_the_job(operator: Operator, jobs: Jobs, ray: FakeRay):
    head = await start(jobs, ray, backoffLimit=0)
    head.end(1)
    failed = await jobs.until_phase("Failed")
    assert condition_of(failed, "Failed")["reason"] == "BackoffLimitExceeded"
    await jobs.until_gone(CLUSTERS)


async def test_a_failed_job_stays_failed_when_its_cluster_is_deleted(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray, backoffLimit=0)
    head.end(1)
    failed = await jobs.until_phase("Failed")
    await jobs.until_gone(CLUSTERS)
    await jobs.patch({"backoffLimit": 5})
    assert (await jobs.get())["status"] == failed["status"]


async def test_a_run_that_takes_too_long_fails(operator: Operator, jobs: Jobs, ray: FakeRay):
    await start(jobs, ray)
    await jobs.patch({"activeDeadlineSeconds": 1})
    failed = await jobs.until_phase("Failed")
    assert condition_of(failed, "Failed")["reason"] == "DeadlineExceeded"


async def test_a_silent_head_is_reported_and_left_alone(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray, stallTimeoutSeconds=4, firstStepTimeoutSeconds=4, backoffLimit=0)
    (cluster,) = await jobs.clusters()
    head.reachable = False
    silent = await jobs.until(
        lambda job: condition_of(job, "Training")["reason"] == "HeadNotAnswering", timeout=90
    )
    assert condition_of(silent, "Training")["status"] == "Unknown"
    assert silent["status"]["phase"] == "Running"
    head.report(1)
    head.reachable = True
    await jobs.until(lambda job: condition_of(job, "Training")["status"] == "True")
    assert [c["metadata"]["uid"] for c in await jobs.clusters()] == [cluster["metadata"]["uid"]]
    assert head.attempts == [1]


async def test_a_run_without_steps_is_dumped_and_started_over(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray, firstStepTimeoutSeconds=4)
    retrying = await jobs.until_phase("Retrying")
    assert condition_of(retrying, "Training")["reason"] == "Stalled"
    assert head.asked == ["stacks"]
    assert len(head.stops) == 1
    await head.until_running(attempt=2)
    head.report(1)
    await jobs.until(lambda job: condition_of(job, "Ready")["status"] == "True")
