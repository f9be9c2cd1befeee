"""The NetworkPolicy of a job: which peers may connect to its pods."""

from ..access import NetworkAccess, Peer
from ..model.naming import UID_LABEL
from ..model.observed import Job
from ..settings import DASHBOARD_PORT, DRIVER_PORT
from .merge import Object
from .objects import metadata

RAY_METRICS_PORT = 8080
"""Port of each Ray pod's own metrics, as KubeRay sets it."""


def network_policy(job: Job, access: NetworkAccess) -> Object:
    """The policy. Egress is not restricted: hubs, trackers and indexes are outside the cluster.

    NetworkPolicies do not apply to a kubelet's probes. The name has a digest of the policy; one
    with other peers is added to it and allows them too.
    """
    own: Object = {"matchLabels": {UID_LABEL: job.uid}}
    rules = [
        {"from": [{"podSelector": own}]},
        *_rule(access.operator, DASHBOARD_PORT, DRIVER_PORT),
        *_rule(access.monitoring, DRIVER_PORT, RAY_METRICS_PORT),
    ]
    policy = {"podSelector": own, "policyTypes": ["Ingress"], "ingress": rules}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(job, content=policy),
        "spec": policy,
    }


def _rule(peers: tuple[Peer, ...], *ports: int) -> list[Object]:
    """A rule for these peers; none without peers, because an empty `from` allows all sources."""
    if not peers:
        return []
    return [{"from": list(peers), "ports": [{"protocol": "TCP", "port": port} for port in ports]}]
