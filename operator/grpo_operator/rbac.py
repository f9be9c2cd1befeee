"""The rights of the operator: exactly what it calls."""

from .model.resources import (
    CLAIMS,
    CLUSTERS,
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    LEASES,
    NETWORK_POLICIES,
    PODS,
    SECRETS,
)

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
