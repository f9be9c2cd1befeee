"""Disruptions of a running job.

The tests of this module share one job that trains without end; each leaves it running.
Aspects: lost producers, operators and heads; scaling; suspension; network access to the head;
deletion.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest_asyncio

from e2e.deployment import OPERATOR, OPERATOR_SELECTOR, RELEASE_NAMESPACE
from e2e.runs import Runs, checkpoint_of, endless, step_of
from kube.harness import Object, is_ready
from kube.operator_harness import CLUSTERS, JOBS, phase_of

NAME = "endless"
JOB_LABEL = "grpo-operator.io/job"
MORE_STEPS = 3


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def runs(shared_runs: Runs) -> AsyncIterator[Runs]:
    """The namespace's jobs, of which one runs."""
    await shared_runs.start(endless(NAME))
    yield shared_runs


async def current(runs: Runs) -> Object:
    return await runs.jobs.get(NAME)


async def continues(runs: Runs) -> Object:
    """Waits for more steps than there are now."""
    return await runs.until_step(NAME, step_of(await current(runs)) + MORE_STEPS)


async def with_a_checkpoint(runs: Runs) -> Object:
    return await runs.until(NAME, lambda job: checkpoint_of(job) > 0)


def assert_no_step_is_lost_or_done_twice(runs: Runs, job: Object) -> None:
    steps = runs.steps(job)
    assert steps == list(range(1, len(steps) + 1))


def written_before(runs: Runs, job: Object, moment: datetime) -> list[int]:
    """The steps on the volume that were written before a moment."""
    return [
        row["grpo_step"]
        for row in runs.metrics(job)
        if datetime.fromisoformat(row["time"]) < moment
    ]


async def test_training_continues_when_a_producer_is_lost(runs: Runs) -> None:
    before = await current(runs)
    lost = await runs.pod(NAME, "producers")
    runs.deployment.kubectl("delete", "pod", lost, "-n", runs.namespace, "--grace-period=0")

    await runs.jobs.until_pods(
        lambda pods: any(
            pod["metadata"]["labels"].get("grpo-operator.io/role") == "producers"
            and pod["metadata"]["name"] != lost
            and is_ready(pod)
            for pod in pods
        ),
        timeout=180,
    )

    after = await continues(runs)
    assert after["status"]["attempt"] == before["status"]["attempt"]
    assert after["status"]["restarts"] == before["status"]["restarts"]
    assert_no_step_is_lost_or_done_twice(runs, after)


async def test_a_run_does_not_notice_that_its_operator_dies(runs: Runs) -> None:
    before = await current(runs)
    lease = runs.deployment.kubectl(
        *("get", "lease", "grpo-operator", "-n", RELEASE_NAMESPACE),
        "-o=jsonpath={.spec.holderIdentity}",
    )
    runs.deployment.kubectl(
        *("delete", "pod", lease, "-n", RELEASE_NAMESPACE), "--grace-period=0", "--force"
    )

    after = await continues(runs)

    assert after["status"]["attempt"] == before["status"]["attempt"]
    assert after["status"]["restarts"] == before["status"]["restarts"]
    assert_no_step_is_lost_or_done_twice(runs, after)
    runs.deployment.kubectl(
        "rollout", "status", OPERATOR, "-n", RELEASE_NAMESPACE, "--timeout=120s"
    )


async def test_producers_scale_while_training(runs: Runs) -> None:
    scale = ["scale", f"grpo/{NAME}", "-n", runs.namespace]
    runs.deployment.kubectl(*scale, "--replicas=2")
    scaled = await runs.until(NAME, lambda job: job["status"]["workers"]["producersReady"] == 2)
    assert phase_of(scaled) == "Running"

    runs.deployment.kubectl(*scale, "--replicas=1")
    await runs.until(NAME, lambda job: job["status"]["workers"]["producersReady"] == 1)

    after = await continues(runs)
    assert after["status"]["attempt"] == scaled["status"]["attempt"]
    assert_no_step_is_lost_or_done_twice(runs, after)


async def test_a_lost_head_is_replaced_and_the_run_resumes_from_its_newest_checkpoint(
    runs: Runs,
) -> None:
    before = await with_a_checkpoint(runs)
    head = await runs.pod(NAME, "head")
    moment = datetime.now(UTC)
    runs.deployment.kubectl(
        *("delete", "pod", head, "-n", runs.namespace), "--grace-period=0", "--force"
    )

    await runs.until(NAME, lambda job: job["status"]["attempt"] == before["status"]["attempt"] + 1)
    await runs.until(NAME, lambda job: phase_of(job) == "Running")
    after = await continues(runs)

    assert after["status"]["restarts"] == before["status"]["restarts"] + 1
    assert_no_step_is_lost_or_done_twice(runs, after)
    kept = written_before(runs, after, moment)
    assert max(kept) >= checkpoint_of(before), "what a checkpoint holds is not done again"


async def test_a_suspended_job_holds_no_pods_and_resumes_where_it_was(runs: Runs) -> None:
    patch = ["patch", f"grpo/{NAME}", "-n", runs.namespace, "--type=merge"]
    before = await current(runs)
    runs.deployment.kubectl(*patch, '-p={"spec":{"suspend":true}}')

    suspended = await runs.until(NAME, lambda job: phase_of(job) == "Suspended")
    moment = datetime.now(UTC)
    assert await runs.jobs.pods() == []
    reached = runs.steps(suspended)[-1]
    assert runs.newest_checkpoint(suspended) == reached >= step_of(before)

    runs.deployment.kubectl(*patch, '-p={"spec":{"suspend":false}}')
    await runs.until(NAME, lambda job: phase_of(job) == "Running")
    after = await runs.until_step(NAME, reached + MORE_STEPS)

    assert after["status"]["restarts"] == before["status"]["restarts"]
    assert_no_step_is_lost_or_done_twice(runs, after)
    assert max(written_before(runs, after, moment)) == reached


async def test_only_the_operator_and_prometheus_reach_a_head(runs: Runs) -> None:
    """That the operator does is seen from a job's progress."""
    head = next(
        pod
        for pod in await runs.jobs.pods()
        if pod["metadata"]["labels"].get("grpo-operator.io/role") == "head"
    )
    address = head["status"]["podIP"]
    runs.deployment.start_toolbox(runs.namespace, "stranger")
    runs.deployment.start_toolbox(
        runs.namespace, "prometheus", **{"app.kubernetes.io/name": "prometheus"}
    )

    def reaches(pod: str, port: int) -> bool:
        return runs.deployment.reaches(runs.namespace, pod, f"http://{address}:{port}/metrics")

    assert reaches("prometheus", 9464)
    assert not reaches("prometheus", 8265)
    assert not reaches("stranger", 9464)
    assert not reaches("stranger", 8265)
    await continues(runs)


async def test_deleting_a_job_leaves_its_volume_alone_even_without_an_operator(
    runs: Runs,
) -> None:
    await continues(runs)
    scale = ["scale", OPERATOR, "-n", RELEASE_NAMESPACE]
    runs.deployment.kubectl(*scale, "--replicas=0")
    runs.deployment.kubectl(
        *("wait", "pod", f"-l={OPERATOR_SELECTOR}", "-n", RELEASE_NAMESPACE),
        *("--for=delete", "--timeout=60s"),
    )

    runs.deployment.kubectl("delete", "grpo", NAME, "-n", runs.namespace)

    await runs.jobs.until_gone(JOBS)
    await runs.jobs.until_gone(CLUSTERS)
    await runs.jobs.until_pods(
        lambda pods: not [p for p in pods if JOB_LABEL in p["metadata"].get("labels", {})],
        timeout=180,
    )
    of_job = ["get", "-n", runs.namespace, f"-l={JOB_LABEL}={NAME}", "-o=name"]
    kinds = "rayclusters,pods,services,configmaps,secrets,networkpolicies,persistentvolumeclaims"
    left = runs.deployment.kubectl(*of_job, kinds).split()
    assert [name.partition("/")[0] for name in left] == ["persistentvolumeclaim"]
    runs.deployment.kubectl(*scale, "--replicas=2")
    runs.deployment.kubectl("rollout", "status", OPERATOR, "-n", RELEASE_NAMESPACE)
