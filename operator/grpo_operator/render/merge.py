"""Strategic merge patch of pod templates, as kubectl and the API server do it.

Maps merge, null deletes, lists replace; but the lists below merge item by item. `$patch: delete`
and `$patch: replace` work in maps and in items. Reference: the patchMergeKey tags of
https://github.com/kubernetes/api/blob/master/core/v1/types.go.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "env": "name",
    "resourceClaims": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "ownerReferences": "uid",
}
_DIRECTIVE = "$patch"

Object = dict[str, Any]


def strategic_merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> Object:
    """`base` with `patch` applied; neither is changed.

    Raises ValueError when an item of a merged list has no key to merge it by.
    """
    if patch.get(_DIRECTIVE) == "replace":
        return _without_directive(patch)
    if patch.get(_DIRECTIVE) == "delete":
        return {}
    merged = dict(base)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            old = merged.get(name)
            merged[name] = strategic_merge(old if isinstance(old, Mapping) else {}, value)
        elif name in _MERGE_KEYS and _are_maps(value):
            merged[name] = _merge_items(name, merged.get(name) or [], value)
        else:
            merged[name] = value
    return merged


def _merge_items(name: str, base: Sequence[Object], patch: Sequence[Object]) -> list[Object]:
    """Items in their old order, new ones behind them."""
    key = _MERGE_KEYS[name]
    if any(item == {_DIRECTIVE: "replace"} for item in patch):
        return [dict(item) for item in patch if _DIRECTIVE not in item]
    for item in patch:
        if key not in item:
            raise ValueError(f"podTemplate: an item of {name} needs `{key}` to be merged by")
    changes = {item[key]: item for item in patch}
    known = {item[key] for item in base}
    merged = [strategic_merge(item, changes.get(item[key], {})) for item in base]
    added = [strategic_merge({}, item) for item in changes.values() if item[key] not in known]
    return [item for item in merged + added if item]


def _are_maps(value: Any) -> bool:
    return isinstance(value, Sequence) and all(isinstance(item, Mapping) for item in value)


def _without_directive(patch: Mapping[str, Any]) -> Object:
    return {name: value for name, value in patch.items() if name != _DIRECTIVE}
