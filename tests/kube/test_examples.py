"""A real API server accepts each example."""

from pathlib import Path

import pytest
import yaml
from kubernetes.aio import client

from kube.operator_harness import GROUP, PLURAL, VERSION, Jobs

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
async def test_the_api_server_takes_every_job_of_an_example(jobs: Jobs, path: Path):
    custom = client.CustomObjectsApi(jobs.api)
    for job in yaml.safe_load_all(path.read_text()):
        created = await custom.create_namespaced_custom_object(
            GROUP, VERSION, jobs.namespace, PLURAL, job, dry_run="All"
        )
        assert created["metadata"]["name"] == job["metadata"]["name"]


async def test_the_api_server_takes_the_claim_of_the_examples(jobs: Jobs):
    claim = yaml.safe_load((EXAMPLES / "cluster" / "shared-storage-claim.yaml").read_text())
    core = client.CoreV1Api(jobs.api)
    created = await core.create_namespaced_persistent_volume_claim(
        jobs.namespace, claim, dry_run="All"
    )
    assert created.spec.access_modes == ["ReadWriteMany"]
