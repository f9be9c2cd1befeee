"""`python -m grpo_operator.selftest`, which `helm test` runs: whether an installation works.

It creates objects as dry runs: the API server validates them and stores nothing.
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
_VALID: Object = {"storage": {"size": "1Gi"}, "producers": _CPU, "consumers": _CPU}
_INVALID: Object = {**_VALID, "producers": {**_CPU, "replicas": -1}}


class InstallationError(Exception):
    """A fault of the installation, and how to fix it."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A release of the chart. Every check raises InstallationError."""

    api: client.ApiClient
    namespace: str
    deployment: str
    settings: Settings

    async def accepts_a_job(self) -> None:
        """GRPOJob is served, with the schema of this version of the operator."""
        try:
            stored = await self._create(JOBS, _manifest(_VALID))
        except client.ApiException as error:
            if error.status == 404:
                text = "the API server does not serve GRPOJob: install crds/grpojobs.yaml"
                raise InstallationError(text) from error
            raise InstallationError(f"a valid GRPOJob is refused: {_message(error)}") from error
        if faults := _job(stored).faults:
            text = "the installed CRD of GRPOJob is not that of this version of the operator"
            raise InstallationError(f"{text}, apply its crds/grpojobs.yaml: {faults}")

    async def refuses_an_invalid_job(self) -> None:
        """The API server validates jobs."""
        try:
            await self._create(JOBS, _manifest(_INVALID))
        except client.ApiException as error:
            if error.status == 422 and "spec.producers.replicas" in _message(error):
                return
            text = f"-1 producers are refused, but for another reason: {_message(error)}"
            raise InstallationError(text) from error
        raise InstallationError(
            "-1 producers are accepted: apply this version's crds/grpojobs.yaml"
        )

    async def accepts_a_cluster(self) -> None:
        """KubeRay's RayCluster has every field that the operator sets."""
        job = _job(_manifest(_VALID) | {"metadata": {"name": "x", "namespace": self.namespace}})
        try:
            await self._create(CLUSTERS, ray_cluster(job, self.settings))
        except client.ApiException as error:
            if error.status == 404:
                text = "the API server does not serve RayCluster of ray.io/v1: install KubeRay"
                raise InstallationError(f"{text} 1.5 or newer") from error
            text = f"a RayCluster is refused; KubeRay 1.5 or newer is needed: {_message(error)}"
            raise InstallationError(text) from error

    async def is_ready(self) -> None:
        """At least one replica of the operator is ready."""
        found = await client.AppsV1Api(self.api).read_namespaced_deployment(
            self.deployment, self.namespace, _request_timeout=TIMEOUT_SECONDS
        )
        if not found.status.available_replicas:
            command = f"kubectl --namespace {self.namespace} logs deployment/{self.deployment}"
            raise InstallationError(f"no replica is ready: see `{command}`")

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
    """Run the checks and print a line for each; returns whether all passed."""
    checks = {
        "a GRPOJob is accepted": installation.accepts_a_job,
        "an invalid GRPOJob is refused": installation.refuses_an_invalid_job,
        "a RayCluster is accepted": installation.accepts_a_cluster,
        "the operator is ready": installation.is_ready,
    }
    passed = True
    for name, run in checks.items():
        try:
            await run()
            print(f"ok      {name}")
        except InstallationError as error:
            print(f"FAILED  {name}: {error}")
            passed = False
    return passed


async def main() -> int:
    """Returns the exit code. POD_NAMESPACE and GRPO_DEPLOYMENT name the release."""
    await config.load_config()
    settings = Settings.from_environment()
    async with client.ApiClient() as api:
        deployment = os.environ["GRPO_DEPLOYMENT"]
        installation = Installation(api, settings.lease_namespace, deployment, settings)
        return 0 if await check(installation) else 1


def _manifest(spec: Object) -> Object:
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "x"}, "spec": spec}


def _job(raw: Object) -> Job:
    """As the operator parses it, with placeholders for what only stored objects have."""
    placeholders = {
        "uid": "00000000-0000-0000-0000-000000000000",
        "resourceVersion": "0",
        "generation": 1,
        "creationTimestamp": "1970-01-01T00:00:00Z",
    }
    return parse_job(raw | {"metadata": placeholders | raw["metadata"]})


def _message(error: client.ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (KeyError, TypeError, ValueError):
        return f"{error.status} {error.reason}"


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
