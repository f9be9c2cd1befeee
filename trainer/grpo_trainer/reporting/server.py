"""The HTTP server of the driver: metrics, progress, health, drain and stack requests."""

import asyncio
import errno
import hmac
import os
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from ..errors import InvalidInputError
from ..options import RunOptions
from .paths import RunPaths
from .progress import ProgressTracker
from .prometheus import Exposition

_SHUTDOWN_SECONDS = 2.0
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Server:
    """Serves GET /metrics, /progress, /healthz and POST /drain, /stacks in the event loop."""

    def __init__(
        self,
        options: RunOptions,
        layout: RunPaths,
        exposition: Exposition,
        tracker: ProgressTracker,
        on_drain: Callable[[], None],
        on_stacks: Callable[[], Awaitable[Path]],
    ) -> None:
        """
        Args:
            on_drain: called once, by the first `POST /drain` with the right token.
            on_stacks: writes the stacks of all processes, and returns the file.
        """
        self._on_stacks = on_stacks
        self._options = options
        self._layout = layout
        self._exposition = exposition
        self._tracker = tracker
        self._on_drain: Callable[[], None] | None = on_drain
        self._token = options.token or secrets.token_urlsafe(32)
        self._runner: web.AppRunner | None = None
        self._end_read = asyncio.Event()

    async def start(self) -> str:
        """Listen, write `endpoint` and, for a generated token, `drain.token`; returns the URL.

        A port in use is replaced by a free one. Raises InvalidInputError for a host that is not
        an address of this machine.
        """
        app = web.Application()
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/progress", self._progress),
                web.get("/healthz", self._healthz),
                web.post("/drain", self._drain),
                web.post("/stacks", self._stacks),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        await self._runner.setup()
        port = await self._listen(self._runner, self._options.port)
        listening = _WILDCARDS.get(self._options.host, self._options.host)
        host = self._options.advertised_host or listening
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        if self._options.token is None:
            _write_private(self._layout.drain_token, self._token)
        self._layout.endpoint.write_text(url + "\n")
        return url

    async def linger(self, seconds: float) -> None:
        """Serve until a client has read the outcome of the run, at most for `seconds`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._end_read.wait(), seconds)

    async def stop(self) -> None:
        """Close all connections and remove the files."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._layout.endpoint.unlink(missing_ok=True)
        self._layout.drain_token.unlink(missing_ok=True)

    async def _listen(self, runner: web.AppRunner, port: int) -> int:
        host = self._options.host
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port != 0:
                return await self._listen(runner, 0)
            raise InvalidInputError(
                f"--host {host} --port {port}: cannot listen: {error.strerror}; "
                "use an address of this machine and a port that is permitted"
            ) from error
        bound: int = runner.addresses[0][1]
        return bound

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._exposition.render(), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def _progress(self, request: web.Request) -> web.Response:
        progress = self._tracker.current
        if progress.state.is_end:
            self._end_read.set()
        return web.Response(
            text=progress.model_dump_json(by_alias=True), content_type="application/json"
        )

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _drain(self, request: web.Request) -> web.Response:
        self._authorize(request)
        if self._on_drain is not None:
            on_drain, self._on_drain = self._on_drain, None
            on_drain()
        return web.Response(status=202, text="draining\n")

    async def _stacks(self, request: web.Request) -> web.Response:
        self._authorize(request)
        return web.Response(text=f"{await self._on_stacks()}\n")

    def _authorize(self, request: web.Request) -> None:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": "Bearer"})


def _write_private(path: Path, text: str) -> None:
    """Write a file that is never readable by others, even if an earlier one was."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
