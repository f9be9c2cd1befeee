"""The API resources that the operator uses, and its rights: exactly what it calls."""

from dataclasses import dataclass

from grpo_trainer.spec import API_GROUP


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object in the API."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """URL path of the collection, of an object, or of its subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if namespace else ""
        parts = (self.plural, name, subresource)
        return root + scope + "".join(f"/{part}" for part in parts if part)


JOBS = Resource(API_GROUP, "v1alpha1", "grpojobs")
CLUSTERS = Resource("ray.io", "v1", "rayclusters")
PODS = Resource("", "v1", "pods")
CLAIMS = Resource("", "v1", "persistentvolumeclaims")
CONFIG_MAPS = Resource("", "v1", "configmaps")
SECRETS = Resource("", "v1", "secrets")
EVENTS = Resource("", "v1", "events")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies")
LEASES = Resource("coordination.k8s.io", "v1", "leases")

_WATCH = ("get", "list", "watch")

RULES: dict[tuple[str, str], tuple[str, ...]] = {
    (JOBS.group, "grpojobs"): (*_WATCH, "delete"),
    (JOBS.group, "grpojobs/status"): ("patch",),
    (CLUSTERS.group, "rayclusters"): (*_WATCH, "create", "patch", "delete"),
    (PODS.group, "pods"): ("list", "watch"),
    (CLAIMS.group, "persistentvolumeclaims"): ("create",),
    (CONFIG_MAPS.group, "configmaps"): ("create", "update"),
    (SECRETS.group, "secrets"): ("create", "get"),
    (NETWORK_POLICIES.group, "networkpolicies"): ("create", "update"),
    (EVENTS.group, "events"): ("create",),
}
"""Rights in every namespace it serves."""

LEASE_RULES: dict[tuple[str, str], tuple[str, ...]] = {
    (LEASES.group, "leases"): ("get", "create", "update"),
}
"""Rights in its own namespace."""


def policy_rules(rules: dict[tuple[str, str], tuple[str, ...]]) -> list[dict[str, list[str]]]:
    """Rules as a Role or ClusterRole has them."""
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
        for (group, resource), verbs in rules.items()
    ]
