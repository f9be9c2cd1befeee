"""What may change between the starts of one run."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import Fault, invalid
from ..spec import GRPOJobSpec, mutability

_MAX_STEPS = "spec.maxSteps"


def spec_differences(old: GRPOJobSpec, new: GRPOJobSpec) -> list[Fault]:
    """Fields in which `new` cannot continue a run of `old`, each with both values.

    May change: what may change in a cluster, running or suspended, and maxSteps upwards, to train
    on; the learning rate then follows the longer schedule. All else would make the result that of
    neither spec.
    """
    faults = []
    for path, before, after in _changes("spec", _plain(old), _plain(new)):
        longer = path == _MAX_STEPS and (after is None or (before is not None and after > before))
        if mutability(path) is None and not longer:
            initial = "absent" if before is None else json.dumps(before, ensure_ascii=False)
            more = " or more" if path == _MAX_STEPS and before is not None else ""
            faults.append(invalid(path, after, f"must be {initial}{more}, as in the run so far"))
    return faults


def _plain(spec: GRPOJobSpec) -> dict[str, Any]:
    return spec.model_dump(mode="json", by_alias=True)


def _changes(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _changes(f"{path}.{key}", old.get(key), new.get(key))
    elif old != new:
        yield path, old, new
