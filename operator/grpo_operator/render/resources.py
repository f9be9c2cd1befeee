"""Resources of a pod, so that Ray's view of it equals Kubernetes'.

KubeRay starts Ray with the CPUs, memory and accelerators of the container's limits (of its requests
for CPUs). A container without a memory limit would offer Ray all memory of its node.
"""

from collections.abc import Mapping

from .merge import Object

_MEMORY = "memory"


def with_equal_view(template: Object, container: str, default: Mapping[str, Object]) -> Object:
    """The pod template with limits for what the container requests.

    A container without any resources gets `default`: a pod without requests is BestEffort, the
    first to be evicted.
    """
    containers = [
        _complete(item, default) if item["name"] == container else item
        for item in template["spec"]["containers"]
    ]
    return {**template, "spec": {**template["spec"], "containers": containers}}


def _complete(container: Object, default: Mapping[str, Object]) -> Object:
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    if not requests and not limits:
        return {**container, "resources": dict(default)} if default else container
    # Kubernetes demands equal requests and limits of extended resources. CPUs have no limit by
    # default: they would be throttled although the node has idle ones.
    missing = {
        name: amount
        for name, amount in requests.items()
        if name not in limits and (name == _MEMORY or "/" in name)
    }
    if not missing:
        return container
    return {**container, "resources": {**resources, "limits": {**limits, **missing}}}
