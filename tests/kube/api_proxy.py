"""A proxy before the API server that records calls and injects faults."""

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

_NAMED = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/[^/]+/(?:namespaces/[^/]+/)?"
    r"(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>[^/]+))?)?$"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class Call:
    """One call, in the terms of RBAC."""

    verb: str
    group: str
    resource: str

    @property
    def writes(self) -> bool:
        return self.verb in _VERBS.values()

    @classmethod
    def of(cls, request: web.Request) -> "Call | None":
        """The call that a request makes; None for discovery."""
        found = _NAMED.match(request.path)
        if found is None:
            return None
        subresource = found["subresource"]
        resource = found["plural"] + (f"/{subresource}" if subresource else "")
        verb = _VERBS.get(request.method)
        if verb is None and found["name"]:
            verb = "get"
        elif verb is None:
            verb = "watch" if "watch" in request.query else "list"
        return cls(verb, found["group"] or "", resource)


Fault = Callable[[Call], int | None]
"""The status with which to refuse a call, HANG_UP, NEVER_ANSWER, or None to let it pass."""

HANG_UP, NEVER_ANSWER = 0, -1


@dataclass
class ApiProxy:
    """Stands between the operator and the API server."""

    server: str
    tls: ssl.SSLContext
    session: aiohttp.ClientSession
    url: str = ""
    calls: list[Call] = field(default_factory=list)
    refused: list[tuple[Call, int]] = field(default_factory=list)
    fault: Fault = lambda call: None
    loses: Callable[[Call], bool] = lambda call: False
    """Whether the API server's answer to a call, which it has performed, is lost on the way."""
    answered: list[tuple[Call, int]] = field(default_factory=list)
    """What the API server itself said, whether its answer was lost or not."""
    after: Callable[[Call], Awaitable[None]] | None = None
    """Runs when a call has been answered by the API server, before its answer is passed on."""
    _silenced: int = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def before(cls, kubeconfig: Path) -> AsyncIterator["ApiProxy"]:
        """A proxy to the cluster of a kubeconfig, inside the block."""
        cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            proxy = cls(cluster["server"], tls, session)
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", proxy._handle)
            runner = web.AppRunner(
                app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
            )
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            try:
                yield proxy
            finally:
                await runner.cleanup()

    def kubeconfig(self, original: Path, copy: Path) -> Path:
        """A kubeconfig with the same user, through this proxy."""
        config = yaml.safe_load(original.read_text())
        config["clusters"][0]["cluster"] = {"server": self.url}
        copy.write_text(yaml.safe_dump(config))
        return copy

    def silence(self) -> None:
        """The watches that are open now stay open, and tell no more."""
        self._silenced += 1

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        call = Call.of(request)
        if call is not None:
            self.calls.append(call)
            status = self.fault(call)
            if status is not None:
                self.refused.append((call, status))
            if status == NEVER_ANSWER:
                await asyncio.Event().wait()  # until the caller hangs up
            if status == HANG_UP:
                _hang_up(request)
            if status is not None:
                body = {"kind": "Status", "code": status, "reason": "Broken", "message": "broken"}
                return web.json_response(body, status=status or 500)
        return await self._forward(request, call)

    async def _forward(self, request: web.Request, call: Call | None) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() != "host"}
        born = self._silenced
        async with self.session.request(
            request.method,
            f"{self.server}{request.raw_path}",
            headers=headers,
            data=await request.read() or None,
            ssl=self.tls,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer:
            if call is not None:
                self.answered.append((call, answer.status))
            if self.after is not None and call is not None and call.writes:
                await self.after(call)
            if call is not None and self.loses(call):
                _hang_up(request)
            passed = {
                k: v
                for k, v in answer.headers.items()
                if k.lower() in ("content-type", "content-encoding")
            }
            response = web.StreamResponse(status=answer.status, headers=passed)
            with contextlib.suppress(ConnectionError):  # the operator may be gone
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    if call is None or call.verb != "watch" or self._silenced == born:
                        await response.write(chunk)
            return response


def _hang_up(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()
