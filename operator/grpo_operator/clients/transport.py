"""HTTP calls to the API server: a turn and a timeout for each, and the error that it raises."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any, Protocol

import aiohttp
from kubernetes.aio import client

from ..model.resources import Resource
from .errors import UnavailableError, error_of

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
_FAILURES = (aiohttp.ClientError, OSError, TimeoutError)
_ONE_CALL = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)


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


class Transport:
    """Calls by verb and resource. Raises a subclass of ApiError."""

    def __init__(
        self,
        api: client.ApiClient,
        observer: CallObserver | None = None,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self.api = api
        self._observer: CallObserver = observer or Unobserved()
        self._slots = asyncio.Semaphore(concurrency)

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
