"""When a field may change: the one table for the definition's transition rules, the documentation
and the resumption of a local run. A field that is not in it is fixed at creation."""

from collections.abc import Mapping
from enum import StrEnum


class Mutable(StrEnum):
    """When a field may change."""

    ALWAYS = "always"
    SUSPENDED = "suspended"
    """Only while no pods exist: `spec.suspend` is set and the phase is Suspended."""


_POOLS = ("head", "producers", "consumers")
_OF_POOLS = ("image", "resources", "nodeSelector", "tolerations", "podTemplate")

MUTABILITY: Mapping[str, Mutable] = {
    "spec.suspend": Mutable.ALWAYS,
    "spec.producers.replicas": Mutable.ALWAYS,
    "spec.checkpoint.drainSeconds": Mutable.ALWAYS,
    "spec.backoffLimit": Mutable.ALWAYS,
    "spec.activeDeadlineSeconds": Mutable.ALWAYS,
    "spec.startupDeadlineSeconds": Mutable.ALWAYS,
    "spec.firstStepTimeoutSeconds": Mutable.ALWAYS,
    "spec.stallTimeoutSeconds": Mutable.ALWAYS,
    "spec.cleanupPolicy.keepFailedPodsSeconds": Mutable.ALWAYS,
    "spec.ttlSecondsAfterFinished": Mutable.ALWAYS,
    **{f"spec.{pool}.{field}": Mutable.SUSPENDED for pool in _POOLS for field in _OF_POOLS},
    "spec.workerTimeoutSeconds": Mutable.SUSPENDED,
    "spec.labels": Mutable.SUSPENDED,
    "spec.annotations": Mutable.SUSPENDED,
    "spec.queueName": Mutable.SUSPENDED,
    "spec.priorityClassName": Mutable.SUSPENDED,
    "spec.imagePullSecrets": Mutable.SUSPENDED,
    "spec.env": Mutable.SUSPENDED,
    "spec.envFrom": Mutable.SUSPENDED,
    "spec.serviceAccountName": Mutable.SUSPENDED,
}
"""Paths in a manifest."""


def mutability(path: str) -> Mutable | None:
    """When the field at a path may change, by itself or as a part of another; None for never."""
    while path:
        if path in MUTABILITY:
            return MUTABILITY[path]
        path = path.rpartition(".")[0]
    return None
