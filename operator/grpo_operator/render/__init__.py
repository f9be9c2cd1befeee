"""Pure builders of the objects that the operator creates for a job."""

from .cluster import ray_cluster, scale_patch
from .environment_pods import (
    environment_deployment,
    environment_name,
    environment_policy,
    environment_service,
    has_environment_pods,
)
from .network import network_policy
from .objects import claim, config_map, secret
from .pods import accelerators

__all__ = [
    "accelerators",
    "claim",
    "config_map",
    "environment_deployment",
    "environment_name",
    "environment_policy",
    "environment_service",
    "has_environment_pods",
    "network_policy",
    "ray_cluster",
    "scale_patch",
    "secret",
]
