"""Pure builders of everything that the operator creates."""

from .cluster import ray_cluster, scale_patch
from .objects import claim, config_map, secret
from .pods import TOKEN_KEY, accelerators

__all__ = [
    "TOKEN_KEY",
    "accelerators",
    "claim",
    "config_map",
    "ray_cluster",
    "scale_patch",
    "secret",
]
