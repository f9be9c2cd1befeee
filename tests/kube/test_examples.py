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
from kube.harness import Object
from kube.operator_harness import CLUSTERS, GROUP, PLURAL, VERSION, Jobs
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
    return given == stored and type(given) is type(stored)


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
async def test_the_api_server_takes_the_pods_of_a_recipe(jobs: Jobs, fields: Object):
    cluster = ray_cluster(job_with(**fields), Settings())
    custom, core = client.CustomObjectsApi(jobs.api), client.CoreV1Api(jobs.api)
    cluster["metadata"] = {"name": "recipe"}
    group, version, plural = CLUSTERS
    await custom.create_namespaced_custom_object(
        group, version, jobs.namespace, plural, cluster, **STRICT
    )
    spec = cluster["spec"]
    for pool in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        body = {**pool["template"], "metadata": pool["template"]["metadata"] | {"name": "recipe"}}
        await core.create_namespaced_pod(jobs.namespace, body, **STRICT)


@pytest.mark.parametrize("body", [pytest.param(body, id=page) for page, body in objects()])
async def test_the_api_server_takes_an_object_of_the_pages(jobs: Jobs, body: Object):
    created = await create(jobs, body)
    assert stored_as_written(body, created)


async def create(jobs: Jobs, body: Object) -> Object:
    core, apps = client.CoreV1Api(jobs.api), client.AppsV1Api(jobs.api)
    match body["kind"]:
        case "Pod":
            found = await core.create_namespaced_pod(jobs.namespace, body, **STRICT)
        case "PersistentVolumeClaim":
            found = await core.create_namespaced_persistent_volume_claim(
                jobs.namespace, body, **STRICT
            )
        case "DaemonSet":
            found = await apps.create_namespaced_daemon_set(jobs.namespace, body, **STRICT)
        case "DeviceClass":
            found = await client.ResourceV1Api(jobs.api).create_device_class(body, **STRICT)
        case other:
            raise AssertionError(f"no way to create a {other}")
    return jobs.api.sanitize_for_serialization(found)
