"""Calls to the API server: plain dicts, a timeout on every call, one error class per meaning."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any, Protocol, TypeVar

import aiohttp
import msgspec
from kubernetes.aio import client

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
    error_of,
)

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

TIMEOUT_SECONDS = 10.0
CONCURRENCY = 32
"""Calls in progress at once."""
_METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
_FAILURES = (aiohttp.ClientError, OSError, TimeoutError)
_ONE_CALL = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)

Object = dict[str, Any]
_T = TypeVar("_T")


class CallObserver(Protocol):
    """Counts calls."""

    def waiting(self) -> AbstractContextManager[object]:
        """Entered while a call waits for its turn."""

    def called(self, verb: str, resource: str, code: int) -> None:
        """A call ended with this status; 0 without a response."""


class Unobserved:
    """Counts nothing."""

    def waiting(self) -> AbstractContextManager[object]:
        return nullcontext()

    def called(self, verb: str, resource: str, code: int) -> None:
        return None


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


class Kube:
    """The API server. Every method raises a subclass of ApiError."""

    def __init__(
        self,
        api: client.ApiClient,
        observer: CallObserver | None = None,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self.api = api
        self._observer: CallObserver = observer or Unobserved()
        self._slots = asyncio.Semaphore(concurrency)

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

    @asynccontextmanager
    async def stream(
        self,
        verb: str,
        resource: Resource,
        namespace: str | None,
        name: str = "",
        subresource: str = "",
        *,
        query: Mapping[str, str],
        idle_seconds: float | None = None,
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """A response as it arrives: a log, or the events of a watch. It takes no turn.

        `idle_seconds` bounds the time between two chunks. Raises UnavailableError for a connection
        that fails inside the block too.
        """
        call = describe(verb, resource, namespace, name, subresource)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=TIMEOUT_SECONDS, sock_read=idle_seconds
        )
        path = resource.path(namespace, name, subresource)
        try:
            response = await self._send(verb, path, query, {}, None, timeout)
            async with response.response:
                if not response.response.ok:
                    body = await response.response.text()
                    raise error_of(response.status, body, call)
                yield response.response.content
        except _FAILURES as error:
            raise _unavailable(error, call) from error

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        with self._observer.waiting():
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
        path = resource.path(namespace, name, subresource)
        call = describe(verb, resource, namespace, name, subresource)
        code = 0
        try:
            async with self._turn():
                response = await self._send(verb, path, query or {}, headers or {}, body, _ONE_CALL)
                answer: bytes = await response.read()
                code = response.status
        except _FAILURES as error:
            raise _unavailable(error, call) from error
        finally:
            self._observer.called(verb, resource.plural, code)
        if not 200 <= code < 300:
            raise error_of(code, answer.decode(errors="replace"), call)
        return answer

    async def _send(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Any,
        timeout: aiohttp.ClientTimeout,
    ) -> Any:
        request = await self.api.param_serialize(
            method=_METHODS[verb],
            resource_path=path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json", **headers},
            body=body,
            auth_settings=["BearerToken"],
        )
        return await self.api.call_api(*request, _request_timeout=timeout)


def describe(
    verb: str, resource: Resource, namespace: str | None, name: str = "", subresource: str = ""
) -> str:
    """A call as RBAC names it: `patch grpojobs/scale.grpo-operator.io math in namespace lab`."""
    kind = resource.plural + (f"/{subresource}" if subresource else "")
    group = f".{resource.group}" if resource.group else ""
    where = f"namespace {namespace}" if namespace else "all namespaces"
    return f"{verb} {kind}{group}{f' {name}' if name else ''} in {where}"


def _unavailable(error: BaseException, call: str) -> UnavailableError:
    return UnavailableError(0, type(error).__name__, str(error), call)


def _object(answer: bytes) -> Object:
    found: Object = _decode(answer, dict)
    return found


def _decode(answer: bytes, kind: type[_T]) -> _T:
    """Raises UnavailableError for a body that is not the API server's: a proxy's, for example."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise UnavailableError(200, "NoAnswer", f"{error}: {answer[:200]!r}") from error
