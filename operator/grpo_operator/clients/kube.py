"""Calls to the API server: plain dicts, a timeout on every call, one error class per meaning."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp
import msgspec
from kubernetes.aio import client

from ..metrics import Metrics
from ..model.resources import Resource

TIMEOUT_SECONDS = 10.0
CONCURRENCY = 32
"""Calls under way in the same moment."""
_METHODS = {
    "get": "GET",
    "list": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"

Object = dict[str, Any]
_T = TypeVar("_T")


class Metadata(msgspec.Struct, rename="camel"):
    """What a list of versions tells of an object; the rest, which is long, is passed over."""

    namespace: str
    name: str
    resource_version: str


class _Item(msgspec.Struct):
    metadata: Metadata


class _MetadataList(msgspec.Struct):
    items: list[_Item] | None = None


class ApiError(Exception):
    """The API server refused a call."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        self.code, self.reason, self.message = code, reason, message
        super().__init__(f"{code} {reason}: {message}")


class NotFoundError(ApiError):
    """The object, or its kind, does not exist."""


class ConflictError(ApiError):
    """It changed meanwhile, or exists already: look again."""


class RefusedError(ApiError):
    """Forbidden, over quota, denied by admission, or invalid: it takes a person to mend it."""


class UnavailableError(ApiError):
    """Overloaded, restarting or not reachable, or the token was just renewed: try again later."""


def _error(code: int, body: str) -> ApiError:
    try:
        status = msgspec.json.decode(body, type=dict)
    except msgspec.DecodeError:
        status = {}
    reason, message = str(status.get("reason", "")), str(status.get("message", body[:500]))
    if code == 404:
        return NotFoundError(code, reason, message)
    if code == 409:
        return ConflictError(code, reason, message)
    if code in (401, 429) or code >= 500:
        # A webhook that denies with 500 is no outage of the API server.
        denied = "admission webhook" in message and "denied the request" in message
        kind = RefusedError if denied else UnavailableError
        return kind(code, reason, message)
    return RefusedError(code, reason, message)


class Kube:
    """The API server, for the verbs that the operator needs."""

    def __init__(
        self, api: client.ApiClient, metrics: Metrics, concurrency: int = CONCURRENCY
    ) -> None:
        self._api, self._metrics = api, metrics
        self._slots = asyncio.Semaphore(concurrency)

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        return _object(await self._call("get", resource, namespace, name))

    async def list(self, resource: Resource, namespace: str | None, selector: str) -> Object:
        """All objects with the labels, newest state."""
        query = {"labelSelector": selector} if selector else {}
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
        return _object(await self._call("create", resource, namespace, body=body))

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
        content_type: str,
        subresource: str = "",
    ) -> Object:
        headers = {"Content-Type": content_type}
        answer = await self._call(
            "patch", resource, namespace, name, subresource, body=body, headers=headers
        )
        return _object(answer)

    async def delete(
        self, resource: Resource, namespace: str, name: str, preconditions: Mapping[str, str]
    ) -> None:
        """Delete exactly the object that was seen; children follow in the background.

        One that is gone already is fine.
        """
        body = {"preconditions": dict(preconditions), "propagationPolicy": "Background"}
        try:
            await self._call("delete", resource, namespace, name, body=body)
        except NotFoundError:
            return

    async def serves(self, resource: Resource) -> bool:
        """Whether the API server knows this kind of object."""
        group = Resource(resource.group, resource.version, "")
        try:
            answer = _object(await self._call("get", group, None))
        except NotFoundError:
            return False
        return any(item["name"] == resource.plural for item in answer["resources"])

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        with self._metrics.queue_depth.track_inprogress():
            await self._slots.acquire()
        try:
            yield
        finally:
            self._slots.release()

    async def _call(
        self,
        verb: str,
        resource: Resource,
        namespace: str | None,
        name: str = "",
        subresource: str = "",
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> bytes:
        """One call, when it is its turn. Raises a subclass of ApiError."""
        request = await self._api.param_serialize(
            method=_METHODS[verb],
            resource_path=resource.path(namespace, name, subresource),
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", **(headers or {})},
            body=body,
            auth_settings=["BearerToken"],
        )
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        code = 0
        try:
            async with self._turn():
                response = await self._api.call_api(*request, _request_timeout=timeout)
                answer: bytes = await response.read()
                code = response.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise UnavailableError(0, type(error).__name__, str(error)) from error
        finally:
            self._metrics.api_requests.labels(verb, resource.plural, str(code)).inc()
        if not 200 <= code < 300:
            raise _error(code, answer.decode(errors="replace"))
        return answer


def _object(answer: bytes) -> Object:
    found: Object = _decode(answer, dict)
    return found


def _decode(answer: bytes, kind: type[_T]) -> _T:
    """Raises UnavailableError for what the API server did not say: a proxy between did."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise UnavailableError(200, "NoAnswer", f"{error}: {answer[:200]!r}") from error
