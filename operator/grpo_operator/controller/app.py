"""One replica of the operator: wait for the Lease, then watch and act until stopped."""

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
from aiohttp import web

from ..clients import ray as rayjobs
from ..clients.connection import api_client
from ..clients.errors import UnavailableError
from ..clients.events import Recorder
from ..clients.kube import Kube
from ..clients.tokens import Tokens, load_key
from ..metrics import Metrics
from ..model.resources import CLUSTERS, JOBS
from ..server import Health, application
from ..settings import Settings
from .accounting import Accounting
from .act import Actor
from .audit import Auditor
from .cache import Cache, Key
from .causes import Causes
from .claims import Claims
from .lease import Lease
from .observe import Observer
from .reconciler import Reconciler
from .throttle import StatusThrottle
from .watches import keep_watching
from .workers import Workers

log = logging.getLogger(__name__)


class NotReadyError(Exception):
    """Something that the operator needs is missing; it may appear later."""


async def run(settings: Settings) -> None:
    """Returns when a signal stops it.

    Raises ConfigurationError, NotReadyError, LeaseLostError, or the error of a part of it.
    """
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(api_client())
        kube = Kube(api, metrics, settings.concurrency)
        session = await stack.enter_async_context(rayjobs.session())
        await _require_kinds(kube, api.configuration.host)
        # With a limit of its own: the Lease must not wait behind a thousand jobs.
        lease = Lease(
            Kube(api, metrics), settings.lease_namespace, settings.lease_name, settings.identity
        )
        health = _follower_health(lease)
        await stack.enter_async_context(_serving(application(metrics, health), settings))
        if not settings.leader_election:
            metrics.leader.set(1)
            await _lead(kube, session, metrics, settings, health, stop)
            return
        if await _first(lease.acquire(), stop.wait()) == 1:
            return
        stack.push_async_callback(lease.release)
        metrics.leader.set(1)
        leading = _lead(kube, session, metrics, settings, health, stop)
        if await _first(leading, lease.keep()) == 1:
            raise LeaseLostError


class LeaseLostError(Exception):
    """Another replica may lead now, so this one must not act."""


async def _lead(
    kube: Kube,
    session: aiohttp.ClientSession,
    metrics: Metrics,
    settings: Settings,
    health: Health,
    stop: asyncio.Event,
) -> None:
    """Act until stopped."""
    cache = Cache()
    key = await load_key(kube, settings.lease_namespace, f"{settings.lease_name}-key")
    tokens = Tokens(kube, key)
    observer = Observer(kube, session, cache, tokens, Causes(kube), settings)
    accounting = Accounting(metrics)
    recorder = Recorder(kube, settings.identity)
    actor = Actor(kube, observer, tokens, settings)
    throttle = StatusThrottle(settings.status_seconds)
    reconciler = Reconciler(kube, cache, observer, actor, recorder, accounting, throttle)
    # With a limit of its own, as the Lease of the leader.
    claims = Claims(Kube(kube.api, metrics), settings.release, cache, metrics)
    workers = Workers(claims.guarded(reconciler.reconcile), metrics)

    def wake(key: Key) -> None:
        job = cache.job(key)
        if job is not None:
            accounting.seen(job)
        workers.wake(key)

    auditor = Auditor(kube, cache, settings.namespaces or (None,), wake, metrics)
    ready = threading.Event()
    health.alive = lambda: f"{auditor.missed} changes were not reported" if auditor.missed else ""
    health.ready = lambda: (
        health.alive() or ("" if ready.is_set() else "the watches are not running")
    )
    watching = keep_watching(kube, cache, wake, settings.namespaces, ready, metrics)
    parts = (workers.run(), watching, auditor.run(), claims.run())
    if await _first(stop.wait(), *parts) != 0:
        raise RuntimeError("the watches ended")


async def _first(*coroutines: Coroutine[object, object, object]) -> int:
    """Run all until one ends; the others are cancelled and have ended too. Returns its index."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    index = next(i for i, task in enumerate(tasks) if task in done)
    tasks[index].result()
    return index


def _follower_health(lease: Lease) -> Health:
    def waiting() -> str:
        seconds = lease.seconds_since_answer()
        return f"no response about the Lease for {seconds:.0f} s" if seconds > 60 else ""

    return Health(alive=lambda: "", ready=waiting)


async def _require_kinds(kube: Kube, server: str) -> None:
    for resource, source in ((JOBS, "crds/grpojobs.yaml"), (CLUSTERS, "KubeRay 1.5 or newer")):
        try:
            served = await kube.serves(resource)
        except UnavailableError as error:
            raise NotReadyError(
                f"cannot reach the API server {server}: {error}; "
                "check that it runs, and that address and credentials are correct"
            ) from error
        if not served:
            kind = f"{resource.plural}.{resource.group}/{resource.version}"
            raise NotReadyError(f"the API server does not serve {kind}: install {source}")


@asynccontextmanager
async def _serving(app: web.Application, settings: Settings) -> AsyncIterator[None]:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, port=settings.listen_port).start()
        except OSError as error:
            raise NotReadyError(f"GRPO_LISTEN_PORT: {settings.listen_port}: {error}") from error
        yield
    finally:
        await runner.cleanup()
