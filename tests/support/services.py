"""An HTTP service on this machine whose responses a test decides."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Respond = Callable[[Any], web.Response | Awaitable[web.Response]]


@dataclass
class Service:
    """What it received, and its address."""

    url: str = ""
    bodies: list[Any] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0


@asynccontextmanager
async def service(respond: Respond, path: str = "/", get: Any = None) -> AsyncIterator[Service]:
    """POST to `path` is answered by `respond(body)`, GET of any path by the JSON of `get`.

    The connection breaks where `respond` raises ConnectionResetError.
    """
    state = Service()

    async def post(request: web.Request) -> web.Response:
        state.bodies.append(await request.json())
        state.headers.append(dict(request.headers))
        state.in_flight += 1
        state.most_in_flight = max(state.most_in_flight, state.in_flight)
        try:
            made = respond(state.bodies[-1])
            return made if isinstance(made, web.Response) else await made
        except ConnectionResetError:
            assert request.transport is not None
            request.transport.abort()
            raise
        finally:
            state.in_flight -= 1

    async def read(_: web.Request) -> web.Response:
        return web.Response(status=404) if get is None else web.json_response(get)

    app = web.Application(client_max_size=1 << 24)
    app.router.add_post(path, post)
    app.router.add_get("/{tail:.*}", read)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    state.url = f"http://{host}:{port}"
    try:
        yield state
    finally:
        await runner.cleanup()


def chat_message(text: str | None) -> web.Response:
    """A chat completion with this message."""
    return web.json_response({"choices": [{"message": {"role": "assistant", "content": text}}]})


async def never(_: Any) -> web.Response:
    """A response that does not come."""
    await asyncio.Event().wait()
    raise AssertionError
