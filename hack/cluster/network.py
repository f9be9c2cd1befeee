"""Addresses of a cluster with real nodes."""

from collections.abc import Sequence
from dataclasses import dataclass

PODS = "10.244.0.0/16"
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
"""The Service `kubernetes`: always the first address."""


@dataclass(frozen=True)
class Node:
    """A node has a bridge and a range of pod addresses; all share one network namespace."""

    index: int

    @property
    def name(self) -> str:
        return f"node-{self.index}"

    @property
    def bridge(self) -> str:
        return f"pods{self.index}"

    @property
    def address(self) -> str:
        """Of the node, and its pods' gateway."""
        return f"10.244.{self.index}.1"

    @property
    def subnet(self) -> str:
        return f"10.244.{self.index}.0/24"


FIRST = Node(0)
"""On its address API server and DNS are reached from pods."""


def commands(nodes: Sequence[Node]) -> list[str]:
    """The shell commands that make the nodes' bridges in a fresh network namespace."""
    bridges = [
        command
        for node in nodes
        for command in (
            f"ip link add {node.bridge} type bridge",
            f"ip address add {node.address}/24 dev {node.bridge}",
            f"ip link set {node.bridge} up",
        )
    ]
    # There is no default route: what runs on a node itself needs this one to reach Services.
    return [*bridges, f"ip route add {SERVICES} dev {FIRST.bridge} src {FIRST.address}"]
