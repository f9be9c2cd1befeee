"""Pure builders of the objects that the operator creates for a job."""

from .cluster import ray_cluster, scale_patch
from .network import network_policy
from .objects import claim, config_map, secret
from .pods import accelerators

__all__ = [
    "accelerators",
    "claim",
    "config_map",
    "network_policy",
    "ray_cluster",
    "scale_patch",
    "secret",
]
