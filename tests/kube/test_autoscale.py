"""Autoscaling of producers by the driver, on a real API server with the real KubeRay.

Aspects: pods follow the driver's number up and down; the API server refuses an invalid range
with the same message as the command line.
"""

import json
from typing import Any

import pytest
from kubernetes.aio import client

from grpo_trainer.spec import InvalidManifestError, parse_manifest
from kube.fake_ray import FakeRay
from kube.operator_harness import (
    GROUP,
    PLURAL,
    VERSION,
    Jobs,
    Operator,
    install_definition,
    manifest,
    phase_of,
    start,
)

SCALED = {"accelerator": "cpu", "autoscale": {"minReplicas": 1, "maxReplicas": 3}}


async def test_pods_follow_what_the_driver_wants(operator: Operator, jobs: Jobs, ray: FakeRay):
    head = await start(jobs, ray, producers=SCALED)
    for wanted, count in ((3, 3), (9, 3), (1, 1)):
        assert head.progress is not None
        head.progress["producersWanted"] = wanted
        scaled = await jobs.until(
            lambda job, n=count: job["status"]["workers"]["producersReady"] == n
        )
        assert phase_of(scaled) == "Running"
        assert scaled["status"]["workers"]["producersDesired"] == count
    assert head.attempts == [1]


@pytest.mark.parametrize(
    "spec",
    [
        {"producers": {**SCALED, "replicas": 4}},
        {"producers": {**SCALED, "minAvailable": 2}},
        {"producers": {**SCALED, "autoscale": {"minReplicas": 3, "maxReplicas": 2}}},
        {"producers": SCALED, "queueName": "gpus"},
    ],
)
async def test_a_range_that_cannot_hold_is_refused(api: client.ApiClient, spec: dict[str, Any]):
    await install_definition(api)
    body = manifest(**spec)
    with pytest.raises(InvalidManifestError) as local:
        parse_manifest(body)
    with pytest.raises(client.ApiException) as refused:
        await client.CustomObjectsApi(api).create_namespaced_custom_object(
            GROUP, VERSION, "default", PLURAL, body, dry_run="All"
        )
    assert refused.value.status == 422
    message = json.loads(refused.value.body)["message"]
    for fault in local.value.faults:
        assert fault.path in message
        assert fault.must in message
