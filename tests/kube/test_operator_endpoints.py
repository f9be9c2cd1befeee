"""What the operator tells over HTTP: its health, and metrics with the names of the contract."""

import pytest

from kube.fake_ray import FakeRay
from kube.operator_harness import Jobs, Operator, start


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_the_operator_says_that_it_is_well(operator: Operator, path: str):
    await operator.until_ready()
    assert await operator.get(path) == (200, "ok")


async def test_the_operators_metrics_have_the_names_of_the_contract(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    head.end(1)
    await jobs.until_phase("Retrying")
    _, text = await operator.get("/metrics")
    assert 'grpo_operator_jobs{phase="Retrying"} 1.0' in text
    assert 'grpo_operator_retries_total{reason="DriverFailed"} 1.0' in text
    for name in (
        "reconcile_seconds_count",
        "queue_depth",
        "job_ready_seconds_count",
        "lost_accelerator_seconds_total",
        "status_latency_seconds_count",
        'api_requests_total{code="201",resource="rayclusters",verb="create"}',
    ):
        assert f"grpo_operator_{name}" in text
