"""Service accounts for tests: their rights, their tokens, and their files in a pod."""

import base64
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio import client

from grpo_operator.model.naming import CLAIM_LEASE
from grpo_operator.rbac import CLAIM_RULES, OWN_RULES, RULES, Rules

Object = dict[str, Any]


def policy_rules(rules: Rules) -> list[dict[str, list[str]]]:
    """Rules in the format of a Role or ClusterRole."""
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
        for (group, resource), verbs in rules.items()
    ]


def served_policy_rules() -> list[dict[str, list[str]]]:
    """The rights in a namespace that the operator serves."""
    return [*policy_rules(RULES), *_named(CLAIM_RULES, {"leases": CLAIM_LEASE})]


def own_policy_rules(lease: str) -> list[dict[str, list[str]]]:
    """OWN_RULES for a Lease of this name."""
    return _named(OWN_RULES, {"leases": lease, "secrets": f"{lease}-key"})


def _named(rules: Rules, names: Mapping[str, str]) -> list[dict[str, list[str]]]:
    """Rules for objects of these names, but for `create`, which RBAC cannot restrict to a name."""
    found = []
    for (group, resource), (create, *others) in rules.items():
        rule = {"apiGroups": [group], "resources": [resource]}
        found.append({**rule, "verbs": [create]})
        found.append({**rule, "resourceNames": [names[resource]], "verbs": others})
    return found


@dataclass(frozen=True)
class ServiceAccount:
    """A service account that has the rights it was granted and no others."""

    api: client.ApiClient
    namespace: str
    name: str

    @classmethod
    async def create(cls, api: client.ApiClient, namespace: str) -> "ServiceAccount":
        account = cls(api, namespace, f"tester-{uuid.uuid4().hex[:8]}")
        body = {"metadata": {"name": account.name, "namespace": namespace}}
        await client.CoreV1Api(api).create_namespaced_service_account(namespace, body)
        return account

    async def grant(self, rules: Sequence[Object]) -> None:
        """The rules of a Role, in its own namespace."""
        rbac, role, binding = self._grant("Role", rules)
        await rbac.create_namespaced_role(self.namespace, role)
        await rbac.create_namespaced_role_binding(self.namespace, binding)

    @contextlib.asynccontextmanager
    async def granted_everywhere(self, rules: Sequence[Object]) -> AsyncIterator[None]:
        """The rules of a ClusterRole, in all namespaces, inside the block."""
        rbac, role, binding = self._grant("ClusterRole", rules)
        name = role["metadata"]["name"]
        await rbac.create_cluster_role(role)
        await rbac.create_cluster_role_binding(binding)
        try:
            yield
        finally:
            await rbac.delete_cluster_role_binding(name)
            await rbac.delete_cluster_role(name)

    async def token(self, bound_to_secret: str | None = None) -> str:
        """A token; one that is bound to a Secret ends with it."""
        bound = {"apiVersion": "v1", "kind": "Secret", "name": bound_to_secret}
        spec = {"audiences": [], "boundObjectRef": bound} if bound_to_secret else {}
        request = await client.CoreV1Api(self.api).create_namespaced_service_account_token(
            self.name, self.namespace, {"spec": spec}
        )
        return str(request.status.token)

    def kubeconfig(self, original: Path, directory: Path, token: str) -> Path:
        """A kubeconfig of the same cluster with a token of the account."""
        kubeconfig = yaml.safe_load(original.read_text())
        kubeconfig["users"][0]["user"] = {"token": token}
        path = directory / f"{self.name}.kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig))
        return path

    def _grant(
        self, kind: str, rules: Sequence[Object]
    ) -> tuple[client.RbacAuthorizationV1Api, Object, Object]:
        metadata = {"name": f"{self.name}-{uuid.uuid4().hex[:4]}"}
        metadata |= {"namespace": self.namespace} if kind == "Role" else {}
        reference = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": kind,
            "name": metadata["name"],
        }
        subject = {"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}
        role = {"metadata": metadata, "rules": list(rules)}
        binding = {"metadata": metadata, "roleRef": reference, "subjects": [subject]}
        return client.RbacAuthorizationV1Api(self.api), role, binding


def pod_files(kubeconfig: Path, directory: Path, token: str) -> Path:
    """What a pod finds of its service account, in a directory that is laid out as kubelet does."""
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    directory.mkdir()
    (directory / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    write_token(directory, token)
    return directory


def write_token(directory: Path, token: str) -> None:
    """As kubelet renews it: the file is whole at every moment."""
    new = directory / "..token"
    new.write_text(token)
    new.replace(directory / "token")
