"""The rights of the operator: exactly the calls that it makes.

Children are created and never updated: an object with other content has another name. So no
ConfigMap, Secret or NetworkPolicy of others can be read or changed. Claims are read for their
access modes, Events for the cause why a volume does not mount.
"""

from collections.abc import Mapping

from .model.resources import (
    CLAIMS,
    CLUSTERS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    LEASES,
    NETWORK_POLICIES,
    PODS,
    SECRETS,
    SERVICES,
)

Rules = Mapping[tuple[str, str], tuple[str, ...]]
"""Verbs by API group and resource."""

_WATCH = ("get", "list", "watch")

RULES: dict[tuple[str, str], tuple[str, ...]] = {
    (JOBS.group, "grpojobs"): (*_WATCH, "delete"),
    (JOBS.group, "grpojobs/status"): ("patch",),
    (CLUSTERS.group, "rayclusters"): (*_WATCH, "create", "patch", "delete"),
    (PODS.group, "pods"): ("list", "watch"),
    (CLAIMS.group, "persistentvolumeclaims"): ("create", "get"),
    (CONFIG_MAPS.group, "configmaps"): ("create",),
    (SECRETS.group, "secrets"): ("create",),
    (NETWORK_POLICIES.group, "networkpolicies"): ("create",),
    (SERVICES.group, "services"): ("create",),
    (DEPLOYMENTS.group, "deployments"): ("create", "delete"),
    (EVENTS.group, "events"): ("create", "list"),
}
"""Rights in every namespace it serves."""

CLAIM_RULES: dict[tuple[str, str], tuple[str, ...]] = {
    (LEASES.group, "leases"): ("create", "get", "update"),
}
"""Rights there on the Lease by which a release claims the namespace, by its name CLAIM_LEASE."""

OWN_RULES: dict[tuple[str, str], tuple[str, ...]] = {
    (LEASES.group, "leases"): ("create", "get", "update"),
    (SECRETS.group, "secrets"): ("create", "get"),
}
"""Rights in its own namespace: the Lease, and the key of the jobs' tokens."""
