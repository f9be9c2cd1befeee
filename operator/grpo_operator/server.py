"""/metrics, /healthz and /readyz of one replica."""

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from .metrics import Metrics

Check = Callable[[], str]
"""The fault; empty without one."""


@dataclass
class Health:
    """Checks of a replica; the leader replaces them."""

    alive: Check
    ready: Check


def application(metrics: Metrics, health: Health) -> web.Application:
    """The HTTP application."""

    async def show_metrics(_: web.Request) -> web.Response:
        text = generate_latest(metrics.registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(_: web.Request) -> web.Response:
        return _answer(health.alive())

    async def readyz(_: web.Request) -> web.Response:
        return _answer(health.ready())

    app = web.Application()
    app.router.add_get("/metrics", show_metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    return app


def _answer(fault: str) -> web.Response:
    return web.Response(text=fault or "ok", status=503 if fault else 200)
