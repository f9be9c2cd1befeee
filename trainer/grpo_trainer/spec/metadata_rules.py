"""Rules of the labels and annotations that a job gives to its RayCluster and pods.

Keys in the domains of Kubernetes, Ray and the operator have effects of their own: only those listed
here may be set. Keys of other domains, and those without one, are free.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from .faults import FaultKind
from .rule import Rule

if TYPE_CHECKING:
    from .job import GRPOJobSpec

RESERVED = r"^([-a-z0-9.]+\.)?(kubernetes|k8s|x-k8s|ray|grpo-operator)\.io/"

LABELS = (
    "app.kubernetes.io/part-of",
    "kueue.x-k8s.io/max-exec-time-seconds",
    "kueue.x-k8s.io/priority-class",
    "ray.io/gang-scheduling-enabled",
    "ray.io/priority-class-name",
)
"""Labels of reserved domains that a job may set."""
ANNOTATIONS = (
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
)
"""Annotations of reserved domains that a job may set."""


def _all_free(keys: Mapping[str, str], allowed: tuple[str, ...]) -> bool:
    return all(key in allowed or re.match(RESERVED, key) is None for key in keys)


def _rules() -> Iterator[Rule]:
    for field, allowed in (("labels", LABELS), ("annotations", ANNOTATIONS)):

        def holds(
            spec: "GRPOJobSpec", field: str = field, allowed: tuple[str, ...] = allowed
        ) -> bool:
            return _all_free(getattr(spec, field), allowed)

        listed = ", ".join(f"'{key}'" for key in allowed)
        pattern = RESERVED.replace("\\", "\\\\")
        yield Rule(
            field=field,
            cel=f"!has(self.{field}) || self.{field}.all(key, key in [{listed}] || "
            f"!key.matches('{pattern}'))",
            holds=holds,
            must="keys of kubernetes.io, k8s.io, x-k8s.io, ray.io and grpo-operator.io but "
            + ", ".join(allowed),
            kind=FaultKind.FORBIDDEN,
        )


METADATA_RULES: tuple[Rule, ...] = tuple(_rules())
