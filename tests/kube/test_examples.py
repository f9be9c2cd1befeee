"""A real API server accepts each example, and what the pages recommend for pods.

Aspects: jobs and claims of examples, stored as they are written; recipes rendered by the operator;
other objects in the pages.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio import client

from grpo_operator.render import ray_cluster
from grpo_operator.settings import Settings
from kube.harness import Cluster, Object, kubectl
from kube.operator_harness import GROUP, PLURAL, VERSION, Jobs
from support.observations import job as job_with
from unit.docs.pages import Block, blocks

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
POOLS = {"head", "producers", "consumers"}
SERVED = {"apps/v1", "resource.k8s.io/v1", "v1"}
STRICT = {"dry_run": "All", "field_validation": "Strict"}


def documents(block: Block) -> list[Object]:
    return [found for found in yaml.safe_load_all(block.text) if isinstance(found, dict)]


def recipes() -> Iterator[tuple[str, Object]]:
    """Page and spec of each part of a manifest that says something of pods."""
    for block in blocks("yaml"):
        for found in documents(block):
            if "containers" in found:
                found = {"podTemplate": {"spec": found}}
            if "podTemplate" in found:
                found = dict.fromkeys(POOLS, found)
            if found.keys() == {"spec"}:
                found = found["spec"]
            if found.keys() & POOLS and "apiVersion" not in found:
                yield str(block), found


def objects() -> Iterator[tuple[str, Object]]:
    """Page and content of each object in the pages but jobs."""
    for block in blocks("yaml"):
        for found in documents(block):
            if found.get("apiVersion") in SERVED:
                yield str(block), found


def stored_as_written(given: Any, stored: Any) -> bool:
    """Whether every value that is given is stored as it is; defaults may be added."""
    if isinstance(given, dict):
        return all(k in stored and stored_as_written(given[k], stored[k]) for k in given)
    if isinstance(given, list):
        pairs = zip(given, stored, strict=True)
        return all(stored_as_written(one, other) for one, other in pairs)
    # JSON has one type of numbers: 1.0 is 1.
    return given == stored and isinstance(given, bool) is isinstance(stored, bool)


@pytest.mark.parametrize("version", [VERSION, "v1beta1"])
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
async def test_every_job_of_an_example_is_stored_as_it_is_written(
    jobs: Jobs, path: Path, version: str
):
    """Argo CD compares the two: a value in another form would differ for ever."""
    custom = client.CustomObjectsApi(jobs.api)
    for job in yaml.safe_load_all(path.read_text()):
        body = job | {"apiVersion": f"{GROUP}/{version}"}
        created = await custom.create_namespaced_custom_object(
            GROUP, version, jobs.namespace, PLURAL, body, **STRICT
        )
        assert stored_as_written(body, created)


async def test_the_api_server_takes_the_claim_of_the_examples(jobs: Jobs):
    claim = yaml.safe_load((EXAMPLES / "cluster" / "shared-storage-claim.yaml").read_text())
    core = client.CoreV1Api(jobs.api)
    created = await core.create_namespaced_persistent_volume_claim(
        jobs.namespace, claim, dry_run="All"
    )
    assert created.spec.access_modes == ["ReadWriteMany"]


@pytest.mark.parametrize("fields", [pytest.param(fields, id=page) for page, fields in recipes()])
async def test_the_api_server_takes_the_pods_of_a_recipe(
    cluster: Cluster, jobs: Jobs, fields: Object
):
    rendered = ray_cluster(job_with(**fields), Settings())
    pools = (rendered["spec"]["headGroupSpec"], *rendered["spec"]["workerGroupSpecs"])
    pods = [{"apiVersion": "v1", "kind": "Pod", **pool["template"]} for pool in pools]
    for body in (rendered, *pods):
        body["metadata"] = {**body["metadata"], "name": "recipe", "namespace": jobs.namespace}
        create(cluster, jobs, body)


@pytest.mark.parametrize("body", [pytest.param(body, id=page) for page, body in objects()])
async def test_the_api_server_takes_an_object_of_the_pages(
    cluster: Cluster, jobs: Jobs, body: Object
):
    create(cluster, jobs, body)


def create(cluster: Cluster, jobs: Jobs, body: Object) -> None:
    """Without storing it; unknown fields are refused."""
    flags = ("--dry-run=server", "--validate=strict", "-n", jobs.namespace)
    done = kubectl(cluster, "create", *flags, "-f", "-", stdin=yaml.safe_dump(body))
    assert done.returncode == 0, done.stderr
