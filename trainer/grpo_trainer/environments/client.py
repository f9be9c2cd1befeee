"""Calls to an environment over HTTP."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from .protocol import (
    EnvironmentFaultError,
    Health,
    Observation,
    Reason,
    Task,
    read_health,
    read_observation,
    read_task,
)

ADDRESS_SECONDS = 5.0
"""How long the addresses of a name are kept: pods come and go."""
_UNAVAILABLE = frozenset({410, 429, 502, 503, 504})
"""Of a proxy without a server behind it, a server that is full, or one that was restarted and has
lost its episodes."""
_DETAIL_CHARACTERS = 500


class EnvironmentClient:
    """An environment's servers, one behind each address of its host name.

    An episode stays at the address that it began at. Use it in one event loop.
    """

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url.rstrip("/"))
        self._session: aiohttp.ClientSession | None = None
        self._addresses: tuple[str, ...] = ()
        self._known_until = 0.0
        self._turn = itertools.count()

    def episode(self) -> HttpEnvironment:
        """The environment of a new episode."""
        return HttpEnvironment(self)

    async def health(self) -> Health:
        """What a server reports of itself; raises EnvironmentFaultError."""
        return read_health(await self.call("GET", await self.address(), "/health", None))

    async def address(self) -> str:
        """The next of the addresses in turn; raises EnvironmentFaultError."""
        if time.monotonic() >= self._known_until:
            self._addresses = await self._resolve()
            self._known_until = time.monotonic() + ADDRESS_SECONDS
        return self._addresses[next(self._turn) % len(self._addresses)]

    def forget_addresses(self) -> None:
        """Resolve the name again before the next episode: an address has failed."""
        self._known_until = 0.0

    async def call(self, method: str, address: str, path: str, body: Any) -> dict[str, Any]:
        """The JSON object that a server answers with; raises EnvironmentFaultError."""
        if self._session is None:
            # Without a limit of its own: the episodes of a producer are limited.
            connector = aiohttp.TCPConnector(limit=0)
            timeout = aiohttp.ClientTimeout(total=None)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        host = self._url.hostname
        try:
            async with self._session.request(
                method,
                urlunsplit((self._url.scheme, address, self._url.path + path, "", "")),
                json=body,
                headers={"Host": self._url.netloc.rpartition("@")[2]},
                server_hostname=host if self._url.scheme == "https" else None,
            ) as answer:
                return _read(path, answer.status, await answer.read())
        except (aiohttp.ClientError, OSError) as error:
            self.forget_addresses()
            detail = f"{self._url.geturl()}{path}: {error or type(error).__name__}"
            raise EnvironmentFaultError(Reason.UNAVAILABLE, detail) from error

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _resolve(self) -> tuple[str, ...]:
        url = self._url
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                url.hostname, port, type=socket.SOCK_STREAM
            )
        except OSError as error:
            detail = f"{url.geturl()}: {error.strerror or error}"
            raise EnvironmentFaultError(Reason.UNAVAILABLE, detail) from error
        # One family: a server that listens on both has two addresses, and is one server.
        family = found[0][0]
        hosts = dict.fromkeys(str(item[4][0]) for item in found if item[0] == family)
        return tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts)


class HttpEnvironment:
    """One episode on a server."""

    def __init__(self, client: EnvironmentClient) -> None:
        self._client = client
        self._address = ""
        self._id: Any = None

    async def reset(self, row: Mapping[str, Any], seed: int) -> Task:
        self._address = await self._client.address()
        body = await self._post("/reset", {"row": row, "seed": seed})
        self._id = body.get("id")
        if self._id is None:
            raise EnvironmentFaultError(Reason.INVALID, "/reset: id is missing")
        return read_task(body)

    async def step(self, completion: str) -> Observation:
        body = {"id": self._id, "completion": completion}
        return read_observation(await self._post("/step", body))

    async def close(self) -> None:
        if self._id is not None:
            await self._post("/close", {"id": self._id})

    async def _post(self, path: str, body: Any) -> dict[str, Any]:
        return await self._client.call("POST", self._address, path, body)


def _read(path: str, status: int, raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    if status == 200 and isinstance(body, dict):
        return body
    text = (
        body.get("error")
        if isinstance(body, dict)
        else raw[:_DETAIL_CHARACTERS].decode(errors="replace")
    )
    if status == 200:
        raise EnvironmentFaultError(Reason.INVALID, f"{path}: must answer a JSON object: {text}")
    reason = Reason.UNAVAILABLE if status in _UNAVAILABLE else Reason.EXCEPTION
    raise EnvironmentFaultError(reason, f"{path}: status {status}: {text}")
