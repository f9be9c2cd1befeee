"""Calls to the API server: plain dicts, a timeout on every call, one error class per meaning."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ..model.resources import Resource
from .errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    UnknownKindError,
)
from .transport import CallObserver, Transport

__all__ = [
    "JSON_PATCH",
    "MERGE_PATCH",
    "AlreadyExistsError",
    "ApiError",
    "CallObserver",
    "ConflictError",
    "ForbiddenError",
    "Kube",
    "Metadata",
    "NotFoundError",
    "Object",
    "RefusedError",
    "UnavailableError",
    "UnknownKindError",
]

_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"

Object = dict[str, Any]
_T = TypeVar("_T")


class Metadata(msgspec.Struct, rename="camel"):
    """What a list of metadata is read for; the rest, which is long, is skipped."""

    namespace: str
    name: str
    resource_version: str
    labels: dict[str, str] = {}


class _Item(msgspec.Struct):
    metadata: Metadata


class _MetadataList(msgspec.Struct):
    items: list[_Item] | None = None


class Kube(Transport):
    """The API server, with a method for each verb. Every one raises a subclass of ApiError."""

    @property
    def server(self) -> str:
        """Its address."""
        return str(self.api.configuration.host)

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        return _object(await self._call("get", resource, namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None,
        selector: str = "",
        *,
        field_selector: str = "",
        limit: int | None = None,
    ) -> Object:
        """All objects with the labels and fields, newest state; at most `limit` of them."""
        selectors = {
            "labelSelector": selector,
            "fieldSelector": field_selector,
            "limit": "" if limit is None else str(limit),
        }
        query = {name: value for name, value in selectors.items() if value}
        return _object(await self._call("list", resource, namespace, query=query))

    async def list_metadata(
        self, resource: Resource, namespace: str | None, selector: str
    ) -> Sequence[Metadata]:
        """Only names and versions, from the API server's cache."""
        query = {"resourceVersion": "0", **({"labelSelector": selector} if selector else {})}
        headers = {"Accept": _METADATA}
        answer = await self._call("list", resource, namespace, query=query, headers=headers)
        return [item.metadata for item in _decode(answer, _MetadataList).items or ()]

    async def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        """Create an object; a field that the API server does not serve is refused, not dropped."""
        query = {"fieldValidation": "Strict"}
        return _object(await self._call("create", resource, namespace, query=query, body=body))

    async def update(self, resource: Resource, namespace: str, body: Object) -> Object:
        name = body["metadata"]["name"]
        return _object(await self._call("update", resource, namespace, name, body=body))

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Any,
        *,
        content_type: str = MERGE_PATCH,
        subresource: str = "",
    ) -> Object:
        headers = {"Content-Type": content_type}
        answer = await self._call(
            "patch", resource, namespace, name, subresource, body=body, headers=headers
        )
        return _object(answer)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        preconditions: Mapping[str, str] | None = None,
    ) -> None:
        """Delete exactly the object that was observed; its children follow in the background.

        One that does not exist any more is no error.
        """
        body: Object = {"propagationPolicy": "Background"}
        if preconditions is not None:
            body["preconditions"] = dict(preconditions)
        try:
            await self._call("delete", resource, namespace, name, body=body)
        except NotFoundError:
            return

    async def serves(self, resource: Resource) -> bool:
        """Whether the API server serves this kind of object."""
        group = Resource(resource.group, resource.version, "")
        try:
            answer = _object(await self._call("get", group, None))
        except NotFoundError:
            return False
        return any(item["name"] == resource.plural for item in answer["resources"])


def _object(answer: bytes) -> Object:
    found: Object = _decode(answer, dict)
    return found


def _decode(answer: bytes, kind: type[_T]) -> _T:
    """Raises UnavailableError for a body that is not the API server's: a proxy's, for example."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise UnavailableError(200, "NoAnswer", f"{error}: {answer[:200]!r}") from error
