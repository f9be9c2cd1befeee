"""The NetworkPolicy of a job: its pods are reached by each other, the operator and Prometheus."""

from ..access import NetworkAccess, Peer
from ..model.naming import UID_LABEL
from ..model.observed import Job
from ..settings import DASHBOARD_PORT, DRIVER_PORT
from .merge import Object
from .objects import metadata

RAY_METRICS_PORT = 8080
"""Every Ray pod's own metrics, at the port that KubeRay gives them."""


def network_policy(job: Job, access: NetworkAccess) -> Object:
    """The policy. Only what comes in is restricted: hubs, trackers and indexes are outside.

    A kubelet's probes come from the node, which NetworkPolicies do not concern.
    """
    own: Object = {"matchLabels": {UID_LABEL: job.uid}}
    rules = [
        {"from": [{"podSelector": own}]},
        *_rule(access.operator, DASHBOARD_PORT, DRIVER_PORT),
        *_rule(access.monitoring, DRIVER_PORT, RAY_METRICS_PORT),
    ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(job),
        "spec": {"podSelector": own, "policyTypes": ["Ingress"], "ingress": rules},
    }


def _rule(peers: tuple[Peer, ...], *ports: int) -> list[Object]:
    """A rule for these peers; none without peers, since an empty `from` lets everybody in."""
    if not peers:
        return []
    return [{"from": list(peers), "ports": [{"protocol": "TCP", "port": port} for port in ports]}]
