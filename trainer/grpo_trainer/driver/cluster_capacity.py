"""The places for producers in Ray's cluster."""

from dataclasses import dataclass

import ray
from ray._private.state import state as ray_state

from .ray_session import PRODUCER


@dataclass(frozen=True, slots=True)
class ClusterCapacity:
    """Where producers can run."""

    places: int
    """Units of the producers' resource on nodes that stay."""
    draining: frozenset[str]
    """Ray's ids of the nodes that are about to leave."""


def observe_capacity() -> ClusterCapacity:
    """Count the places of all nodes that are alive and not draining."""
    draining = frozenset(ray_state.get_draining_nodes())
    staying = (n for n in ray.nodes() if n["Alive"] and n["NodeID"] not in draining)
    places = sum(int(node["Resources"].get(PRODUCER, 0)) for node in staying)
    return ClusterCapacity(places, draining)
