"""What the pods of all kinds have in common."""

from collections.abc import Sequence

from grpo_trainer.spec.base import Record
from grpo_trainer.spec.cluster import PodPoolSpec

from ..defaults import JobDefaults
from .merge import Object

_USER = 1000
CONTAINER_SECURITY: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


def pod_security(defaults: JobDefaults, *, with_volume: bool) -> Object:
    """The chart's security context of pods, else one without root."""
    if defaults.pod_security_context is not None:
        return defaults.pod_security_context
    group = {"fsGroup": _USER, "fsGroupChangePolicy": "OnRootMismatch"} if with_volume else {}
    return {
        "runAsNonRoot": True,
        "runAsUser": _USER,
        "runAsGroup": _USER,
        **group,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def joined(defaults: Sequence[Record], given: Sequence[Record]) -> list[Object]:
    """The chart's items and the spec's, each once."""
    return [item.plain() for item in dict.fromkeys((*defaults, *given))]


def amounts(pool: PodPoolSpec) -> dict[str, dict[str, str]]:
    """Requests and limits of the spec, as text."""
    resources = pool.resources
    return {
        kind: {name: str(quantity) for name, quantity in given.items()}
        for kind, given in (("requests", resources.requests), ("limits", resources.limits))
    }
