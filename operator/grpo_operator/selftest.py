"""`python -m grpo_operator.selftest`, as `helm test` runs it: whether this installation can work.

What it creates it creates as a dry run: the API server judges all of it and keeps nothing.
"""

import asyncio
import json
import os
import sys
from dataclasses import dataclass

from kubernetes.aio import client, config

from grpo_trainer.spec import API_VERSION, KIND

from .model.observed import Job
from .model.parsing import parse_job
from .model.resources import CLUSTERS, JOBS, Resource
from .render import ray_cluster
from .render.merge import Object
from .settings import Settings

TIMEOUT_SECONDS = 10.0
_CPU = {"accelerator": "cpu"}
_LEGAL: Object = {"storage": {"size": "1Gi"}, "producers": _CPU, "consumers": _CPU}
_FAULTY: Object = {**_LEGAL, "producers": {**_CPU, "replicas": -1}}


class InstallationError(Exception):
    """What is wrong, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What a release of the chart stands on. Every check raises InstallationError."""

    api: client.ApiClient
    namespace: str
    deployment: str
    settings: Settings

    async def accepts_a_job(self) -> None:
        """GRPOJob is known, and defined as this version of the operator reads it."""
        try:
            stored = await self._create(JOBS, _manifest(_LEGAL))
        except client.ApiException as error:
            if error.status == 404:
                text = "the API server does not know GRPOJob: install crds/grpojobs.yaml"
                raise InstallationError(text) from error
            raise InstallationError(f"a legal GRPOJob is refused: {_message(error)}") from error
        if faults := _job(stored).faults:
            text = "the installed definition of GRPOJob does not fit this version of the operator"
            raise InstallationError(f"{text}, apply its crds/grpojobs.yaml: {faults}")

    async def refuses_a_faulty_job(self) -> None:
        """The API server checks what it is given."""
        try:
            await self._create(JOBS, _manifest(_FAULTY))
        except client.ApiException as error:
            if error.status == 422 and "spec.producers.replicas" in _message(error):
                return
            text = f"-1 producers are refused, but for a wrong reason: {_message(error)}"
            raise InstallationError(text) from error
        raise InstallationError(
            "-1 producers are accepted: apply this version's crds/grpojobs.yaml"
        )

    async def accepts_a_cluster(self) -> None:
        """KubeRay's RayCluster has all fields that the operator sets."""
        job = _job(_manifest(_LEGAL) | {"metadata": {"name": "x", "namespace": self.namespace}})
        try:
            await self._create(CLUSTERS, ray_cluster(job, self.settings))
        except client.ApiException as error:
            if error.status == 404:
                text = "the API server does not know RayCluster of ray.io/v1: install KubeRay"
                raise InstallationError(f"{text} 1.5 or newer") from error
            text = f"a RayCluster is refused; KubeRay 1.5 or newer is needed: {_message(error)}"
            raise InstallationError(text) from error

    async def is_ready(self) -> None:
        """At least one replica of the operator is."""
        found = await client.AppsV1Api(self.api).read_namespaced_deployment(
            self.deployment, self.namespace, _request_timeout=TIMEOUT_SECONDS
        )
        if not found.status.available_replicas:
            look = f"kubectl --namespace {self.namespace} logs deployment/{self.deployment}"
            raise InstallationError(f"no replica is ready: see `{look}`")

    async def _create(self, resource: Resource, body: Object) -> Object:
        stored: Object = await client.CustomObjectsApi(self.api).create_namespaced_custom_object(
            resource.group,
            resource.version,
            self.namespace,
            resource.plural,
            body,
            dry_run="All",
            field_validation="Strict",
            _request_timeout=TIMEOUT_SECONDS,
        )
        return stored


async def check(installation: Installation) -> bool:
    """Print a line for each check; whether all hold."""
    checks = {
        "a GRPOJob is accepted": installation.accepts_a_job,
        "a faulty GRPOJob is refused": installation.refuses_a_faulty_job,
        "a RayCluster is accepted": installation.accepts_a_cluster,
        "the operator is ready": installation.is_ready,
    }
    well = True
    for name, holds in checks.items():
        try:
            await holds()
            print(f"ok      {name}")
        except InstallationError as error:
            print(f"FAILED  {name}: {error}")
            well = False
    return well


async def main() -> int:
    """The exit code. POD_NAMESPACE and GRPO_DEPLOYMENT say which release it is."""
    await config.load_config()
    settings = Settings.from_environment()
    async with client.ApiClient() as api:
        deployment = os.environ["GRPO_DEPLOYMENT"]
        installation = Installation(api, settings.lease_namespace, deployment, settings)
        return 0 if await check(installation) else 1


def _manifest(spec: Object) -> Object:
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "x"}, "spec": spec}


def _job(raw: Object) -> Job:
    """As the operator would read it; what only a stored object has is made up."""
    made_up = {
        "uid": "00000000-0000-0000-0000-000000000000",
        "resourceVersion": "0",
        "generation": 1,
        "creationTimestamp": "1970-01-01T00:00:00Z",
    }
    return parse_job(raw | {"metadata": made_up | raw["metadata"]})


def _message(error: client.ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (KeyError, TypeError, ValueError):
        return f"{error.status} {error.reason}"


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
