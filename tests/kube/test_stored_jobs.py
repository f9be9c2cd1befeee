"""Jobs that version 0.1.0 of the definition stored, after an upgrade of the definition.

Each test has both definitions in an API group of its own. Aspects: an object without a field that
has lost its default can be replaced; status, finalizers and suspend can be patched; a job that the
new definition stored can be changed after a rollback.
"""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio import client

from kube.harness import Object
from kube.operator_harness import (
    DEFINITION,
    MERGE_PATCH,
    PLURAL,
    VERSION,
    install_definition,
    manifest,
    update_definition,
)

_OLD = Path(__file__).parent / "definitions" / "grpojobs-0.1.0.yaml"
pytestmark = pytest.mark.parametrize("algorithm", ["GRPO", "DAPO"])


@dataclass(frozen=True)
class Group:
    """An API group with a definition of GRPOJob, and one job in it."""

    api: client.ApiClient
    name: str
    namespace: str

    def definition(self, path: Path) -> Object:
        """The definition of a file, in this group."""
        found: Object = yaml.safe_load(path.read_text())
        found["metadata"]["name"] = f"{PLURAL}.{self.name}"
        found["spec"]["group"] = self.name
        found["spec"]["names"]["shortNames"] = []
        return found

    async def replace(self, path: Path) -> None:
        await update_definition(self.api, self.definition(path))

    def body(self, **spec: Any) -> Object:
        return manifest(**spec) | {"apiVersion": f"{self.name}/{VERSION}"}

    @property
    def where(self) -> tuple[str, str, str, str]:
        return self.name, VERSION, self.namespace, PLURAL

    @property
    def custom(self) -> client.CustomObjectsApi:
        return client.CustomObjectsApi(self.api)

    async def create(self, **spec: Any) -> Object:
        return await self.custom.create_namespaced_custom_object(*self.where, self.body(**spec))

    async def put(self, version: str, **spec: Any) -> Object:
        """Replace the job by a manifest, as `kubectl replace` does."""
        body = self.body(**spec)
        body["metadata"]["resourceVersion"] = version
        return await self.custom.replace_namespaced_custom_object(*self.where, "job", body)

    async def patch(self, body: Object) -> Object:
        return await self.custom.patch_namespaced_custom_object(
            *self.where, "job", body, _content_type=MERGE_PATCH
        )

    async def patch_status(self, status: Object) -> Object:
        return await self.custom.patch_namespaced_custom_object_status(
            *self.where, "job", {"status": status}, _content_type=MERGE_PATCH
        )


@pytest.fixture
async def group(api: client.ApiClient, namespace: str) -> AsyncIterator[Group]:
    group = Group(api, f"{uuid.uuid4().hex[:8]}.example.com", namespace)
    await install_definition(api, group.definition(_OLD))
    yield group
    extensions = client.ApiextensionsV1Api(api)
    await extensions.delete_custom_resource_definition(f"{PLURAL}.{group.name}")


async def test_a_job_can_be_replaced_without_a_field_that_lost_its_default(group: Group, algorithm):
    old = await group.create(algorithm={"name": algorithm})
    assert old["spec"]["algorithm"]["clipLow"] == 0.2
    await group.replace(DEFINITION)
    version = old["metadata"]["resourceVersion"]
    new = await group.put(version, algorithm={"name": algorithm}, backoffLimit=7)
    assert "clipLow" not in new["spec"]["algorithm"]
    assert new["spec"]["backoffLimit"] == 7


async def test_its_effective_value_stays_immutable(group: Group, algorithm):
    old = await group.create(algorithm={"name": algorithm, "clipLow": 0.1})
    await group.replace(DEFINITION)
    with pytest.raises(client.ApiException) as error:
        await group.put(old["metadata"]["resourceVersion"], algorithm={"name": algorithm})
    assert "spec.algorithm.clipLow is immutable" in str(error.value.body)


async def test_status_finalizers_and_suspend_can_be_patched(group: Group, algorithm):
    await group.create(algorithm={"name": algorithm})
    await group.patch_status({"phase": "Running", "attempt": 1})
    await group.replace(DEFINITION)
    changed = await group.patch_status({"phase": "Running", "attempt": 2})
    assert changed["status"]["attempt"] == 2
    await group.patch({"metadata": {"finalizers": ["example.com/hold"]}})
    changed = await group.patch({"spec": {"suspend": True}, "metadata": {"finalizers": None}})
    assert changed["spec"]["suspend"] is True
    assert "finalizers" not in changed["metadata"]


async def test_a_job_of_the_new_definition_can_be_changed_after_a_rollback(group: Group, algorithm):
    await group.replace(DEFINITION)
    await group.create(algorithm={"name": algorithm})
    await group.patch_status({"phase": "Running", "attempt": 1})
    await group.replace(_OLD)
    await group.patch({"spec": {"suspend": True}})
    await group.patch_status({"phase": "Suspended"})
    await group.replace(DEFINITION)
    changed = await group.patch({"spec": {"suspend": False}})
    assert changed["spec"]["suspend"] is False
