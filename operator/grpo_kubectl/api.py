"""Calls to the API server: plain dicts, a deadline on every call, errors fit to be read."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from kubernetes.aio import client

from grpo_operator.model.resources import Resource

from .errors import refusal, unreachable

Object = dict[str, Any]
Objects = list[Object]

TIMEOUT_SECONDS = 15.0
WATCH_SECONDS = 300
"""The API server ends a watch after this time, and it is begun anew."""
_SLACK_SECONDS = 30
_METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "patch": "PATCH",
    "delete": "DELETE",
}
_UNREACHABLE = (aiohttp.ClientError, OSError, TimeoutError)
_ONE_CALL = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
_GONE = "ERROR"


@dataclass(frozen=True, slots=True)
class Target:
    """What a call is about."""

    resource: Resource
    namespace: str | None
    name: str = ""
    subresource: str = ""

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace, self.name, self.subresource)

    def __str__(self) -> str:
        kind = self.resource.plural + (f"/{self.subresource}" if self.subresource else "")
        group = f".{self.resource.group}" if self.resource.group else ""
        name = f" {self.name}" if self.name else ""
        where = f"namespace {self.namespace}" if self.namespace else "all namespaces"
        return f"{kind}{group}{name} in {where}"


class Api:
    """The API server as one user sees it."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._api = api
        self.namespace = namespace
        """The user's, unless a command says otherwise."""

    @property
    def client(self) -> client.ApiClient:
        return self._api

    @property
    def server(self) -> str:
        return str(self._api.configuration.host)

    async def get(self, target: Target) -> Object:
        return await self._call("get", target)

    async def list(self, target: Target, query: Mapping[str, str] | None = None) -> Object:
        return await self._call("list", target, query=query)

    async def create(self, target: Target, body: Object) -> Object:
        return await self._call("create", target, body=body)

    async def merge(self, target: Target, body: Object) -> Object:
        """A merge patch."""
        return await self._call("patch", target, body=body)

    async def delete(self, target: Target) -> None:
        await self._call("delete", target, body={"propagationPolicy": "Background"})

    async def follow(self, target: Target) -> AsyncGenerator[Objects, None]:
        """All objects of the target's kind, or those of its name, now and after each change."""
        named = {"fieldSelector": f"metadata.name={target.name}"} if target.name else {}
        collection = Target(target.resource, target.namespace)
        while True:
            listed = await self.list(collection, named)
            objects = {item["metadata"]["uid"]: item for item in listed["items"]}
            yield list(objects.values())
            since = {"resourceVersion": listed["metadata"]["resourceVersion"]}
            async with aclosing(self._events(collection, named | since)) as events:
                async for event in events:
                    if event["type"] == _GONE:  # the version is too old: list again
                        break
                    item = event["object"]
                    if event["type"] == "DELETED":
                        objects.pop(item["metadata"]["uid"], None)
                    else:
                        objects[item["metadata"]["uid"]] = item
                    yield list(objects.values())

    async def log(self, target: Target, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """A container's log, as it comes; without an end when it is followed."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_SECONDS)
        async with self._open("get", target, query=query, timeout=timeout) as response:
            try:
                async for chunk in response.content.iter_any():
                    yield chunk
            except aiohttp.ClientError as error:
                raise unreachable(self.server, error) from error

    async def _events(
        self, target: Target, query: Mapping[str, str]
    ) -> AsyncGenerator[Object, None]:
        query = {**query, "watch": "true", "timeoutSeconds": str(WATCH_SECONDS)}
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=TIMEOUT_SECONDS, sock_read=WATCH_SECONDS + _SLACK_SECONDS
        )
        async with self._open("watch", target, query=query, timeout=timeout) as response:
            try:
                async for line in response.content:
                    yield json.loads(line)
            except (
                aiohttp.ClientError
            ):  # the connection broke: listing again tells whether for good
                return

    async def _call(
        self,
        verb: str,
        target: Target,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
    ) -> Object:
        async with self._open(verb, target, query=query, body=body, timeout=_ONE_CALL) as response:
            try:
                answer: Object = json.loads(await response.read())
            except _UNREACHABLE as error:
                raise unreachable(self.server, error) from error
        return answer

    @asynccontextmanager
    async def _open(
        self,
        verb: str,
        target: Target,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One call and its open answer. Raises CommandError."""
        headers = {"Accept": "application/json"}
        if verb == "patch":
            headers["Content-Type"] = "application/merge-patch+json"
        request = await self._api.param_serialize(
            method=_METHODS[verb],
            resource_path=target.path,
            query_params=list((query or {}).items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = await self._api.call_api(*request, _request_timeout=timeout)
            response: aiohttp.ClientResponse = answer.response
            refused = "" if response.ok else await response.text()
        except _UNREACHABLE as error:
            raise unreachable(self.server, error) from error
        async with response:
            if not response.ok:
                raise refusal(verb, str(target), response.status, refused)
            yield response
