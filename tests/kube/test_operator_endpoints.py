"""The operator's HTTP endpoints.

Aspects: health; metrics and their names; a port that is in use.
"""

import asyncio
from pathlib import Path

import pytest

from kube.fake_ray import FakeRay
from kube.harness import Cluster
from kube.operator_harness import Jobs, Operator, running_operator, start


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


async def test_a_port_that_is_taken_is_named_in_a_line(
    operator: Operator, cluster: Cluster, jobs: Jobs, ray: FakeRay, tmp_path: Path
):
    await operator.until_ready()
    log, port = tmp_path / "log", f"{operator.port}"
    namespace = jobs.namespace
    async with running_operator(
        cluster.kubeconfig, namespace, ray, log, GRPO_LISTEN_PORT=port, GRPO_LOG_LEVEL="INFO"
    ) as second:
        assert await asyncio.wait_for(second.process.wait(), 20) == 1
    (line,) = log.read_text().splitlines()
    assert f"GRPO_LISTEN_PORT: {port}: " in line
    assert "address already in use" in line
