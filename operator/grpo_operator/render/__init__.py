"""Pure builders of everything that the operator creates."""

from .cluster import ray_cluster, scale_patch
from .network import network_policy
from .objects import claim, config_map, secret
from .pods import TOKEN_KEY, accelerators

__all__ = [
    "TOKEN_KEY",
    "accelerators",
    "claim",
    "config_map",
    "network_policy",
    "ray_cluster",
    "scale_patch",
    "secret",
]
