"""Releases of the chart on a real API server, and their objects."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes.aio import client

from kube.accounts import ServiceAccount
from kube.harness import Cluster, Object, until
from kube.operator_harness import GROUP, PLURAL
from support.helm_chart import CHART, helm, settings

DEFINITION = f"{PLURAL}.{GROUP}"
DEPLOYMENT = "release-grpo-operator"


@dataclass(frozen=True)
class Release:
    """A release of the chart."""

    cluster: Cluster
    namespace: str
    name: str = "release"

    def helm(self, command: str, *arguments: str | Path) -> str:
        where = ("--namespace", self.namespace, "--wait", "--timeout", "60s")
        return helm(command, self.name, *arguments, *where, kubeconfig=self.cluster.kubeconfig)

    @contextlib.contextmanager
    def installed(self, values: Object | None = None, chart: Path = CHART) -> Iterator["Release"]:
        try:
            self.helm("install", chart, *settings(values or {}))
            yield self
        finally:
            self.helm("uninstall", "--ignore-not-found")

    @contextlib.contextmanager
    def test_account(self) -> Iterator[None]:
        """Inside the block the account of `helm test` exists; the nodes here run no pods of it."""
        where = ("--namespace", self.namespace)
        hooks = yaml.safe_load_all(
            helm("get", "hooks", self.name, *where, kubeconfig=self.cluster.kubeconfig)
        )
        account = [item for item in hooks if item and item["kind"] != "Pod"]
        assert {item["kind"] for item in account} == {"ServiceAccount", "Role", "RoleBinding"}
        text = yaml.safe_dump_all(account)
        self._kubectl(text, "apply")
        try:
            yield
        finally:
            self._kubectl(text, "delete")

    def _kubectl(self, text: str, verb: str) -> None:
        command = ("kubectl", "--kubeconfig", self.cluster.kubeconfig, verb, "-f", "-")
        subprocess.run(command, input=text, text=True, check=True, capture_output=True)


async def definition(api: client.ApiClient, name: str = DEFINITION) -> Object | None:
    extensions = client.ApiextensionsV1Api(api)
    found = await extensions.list_custom_resource_definition(field_selector=f"metadata.name={name}")
    items: list[Object] = api.sanitize_for_serialization(found)["items"]
    return items[0] if items else None


async def until_definition(api, holds):
    listing = client.ApiextensionsV1Api(api).list_custom_resource_definition
    await until(holds, listing, field_selector=f"metadata.name={DEFINITION}")


async def may(api: client.ApiClient, user: str, namespace: str, verb: str, resource: str) -> bool:
    """What the API server would say to a user."""
    attributes = {"group": GROUP, "resource": resource, "verb": verb, "namespace": namespace}
    review = await client.AuthorizationV1Api(api).create_subject_access_review(
        {"spec": {"user": user, "resourceAttributes": attributes}}
    )
    return bool(review.status.allowed)


async def kubeconfig_of(api: client.ApiClient, release: Release, name: str) -> Path:
    """With the rights of a service account of the release."""
    account = ServiceAccount(api, release.namespace, name)
    cluster = release.cluster
    return account.kubeconfig(cluster.kubeconfig, cluster.state, await account.token())


async def environment(api: client.ApiClient, release: Release) -> dict[str, str]:
    """The operator's, as its pods have it, but for what only works inside a cluster."""
    found = await client.AppsV1Api(api).read_namespaced_deployment(DEPLOYMENT, release.namespace)
    (container,) = found.spec.template.spec.containers
    outside = ("GRPO_HEAD_URL_TEMPLATE", "GRPO_LISTEN_PORT")
    variables = {v.name: v.value or "" for v in container.env if v.name not in outside}
    return variables | {"POD_NAMESPACE": release.namespace, "POD_NAME": "pod"}
