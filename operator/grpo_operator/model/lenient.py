"""Reading records that another version wrote: unknown and invalid parts are left out.

Strict validation belongs to admission and `grpo validate`. Here a field of a newer definition or of
a newer trainer must not make a running job unreadable.
"""

import copy
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

_Record = TypeVar("_Record", bound=BaseModel)


def read_leniently(record: type[_Record], data: Any) -> _Record:
    """`data` as a record: unknown fields are ignored, invalid ones get their defaults.

    An invalid item of a list is left out. Raises pydantic.ValidationError when `data` as a whole is
    no such record.
    """
    data = copy.deepcopy(data)
    while True:
        try:
            return record.model_validate(data, extra="ignore")
        except ValidationError as error:
            if not _remove(data, error.errors(include_url=False)[0]["loc"]):
                raise


def _remove(data: Any, path: tuple[int | str, ...]) -> bool:
    """Remove the innermost part of `data` that lies on the path; False when there is none."""
    found: tuple[Any, int | str] | None = None
    node: Any = data
    for part in path:
        if not _has(node, part):
            break
        found, node = (node, part), node[part]
    if found is None:
        return False
    parent, key = found
    del parent[key]
    return True


def _has(node: Any, part: int | str) -> bool:
    if isinstance(node, dict):
        return part in node
    return isinstance(node, list) and isinstance(part, int) and part < len(node)
