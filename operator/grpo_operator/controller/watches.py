"""Watches: kopf lists, watches and reconnects; every event goes to the cache.

Only raw events are used: kopf then writes nothing, neither finalizers nor annotations. It ends
when the API server refuses one of its watches, so it is started again with the namespaces that can
be read: one that was deleted, or lost its Role, does not affect the others.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any

import kopf

from ..clients.errors import ApiError, UnavailableError
from ..clients.kube import Kube
from ..metrics import Metrics
from ..model.resources import JOBS, Resource
from .audit import SELECTORS
from .cache import Cache, Key

log = logging.getLogger(__name__)

SERVER_TIMEOUT_SECONDS = 300
CHUNK = 200
"""Objects of a list that are in memory at once: a pod takes 60 KB."""
INACTIVITY_SECONDS = 70
RETRY_SECONDS = 5.0
"""Time between two starts of kopf."""
CHECK_SECONDS = 30.0
"""Time between two checks which namespaces can be read."""


async def keep_watching(
    kube: Kube,
    store: Cache,
    wake: Callable[[Key], None],
    namespaces: Sequence[str],
    ready: threading.Event,
    metrics: Metrics,
) -> None:
    """Watch until cancelled; `ready` is set while watches run. Empty `namespaces` are all."""
    scopes: Sequence[str | None] = namespaces or (None,)
    for resource in SELECTORS:
        metrics.invalid_objects.labels(resource.plural)  # so that the series begin at 0
    while True:
        served = await _readable(kube, scopes)
        metrics.unserved_namespaces.set(len(scopes) - len(served))
        if served:
            names = [scope for scope in served if scope is not None]
            watching = asyncio.create_task(watch(store, wake, names, ready, metrics))
            try:
                await _until_it_ends_or(watching, _until_changed(kube, scopes, served))
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
        ready.clear()
        await asyncio.sleep(RETRY_SECONDS)


async def _until_it_ends_or(
    watching: asyncio.Task[None], change: Coroutine[Any, Any, None]
) -> None:
    changing = asyncio.create_task(change)
    try:
        await asyncio.wait({watching, changing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)
    if watching.done() and (error := watching.exception()) is not None:
        log.error("the watches ended, and are started again: %r", error)


async def _until_changed(
    kube: Kube, scopes: Sequence[str | None], served: Sequence[str | None]
) -> None:
    while await _readable(kube, scopes) == served:
        await asyncio.sleep(CHECK_SECONDS)
    log.warning("the namespaces that can be read have changed: the watches are started again")


async def _readable(kube: Kube, scopes: Sequence[str | None]) -> list[str | None]:
    """The scopes whose objects may be listed; while the API server is unavailable, all."""
    found = []
    for scope in scopes:
        try:
            for resource, selector in SELECTORS.items():
                await kube.list(resource, scope, selector, limit=1)
        except UnavailableError:
            pass
        except ApiError as error:
            log.error("cannot serve %s: %s", scope or "all namespaces", error)
            continue
        found.append(scope)
    return found


async def watch(
    store: Cache,
    wake: Callable[[Key], None],
    namespaces: Sequence[str],
    ready: threading.Event,
    metrics: Metrics,
) -> None:
    """Update the cache and wake jobs until cancelled or refused; `ready` is set once kopf runs.

    kopf treats every task and signal of its event loop as its own, so it has a loop in a thread of
    its own. Events cross into this loop, which alone touches the cache.
    """
    ours = asyncio.get_running_loop()
    # Without it a job's timers would carry the context of kopf's handler, which holds the object.
    context = copy_context()

    def received(resource: Resource, event: kopf.RawEvent) -> None:
        try:
            key = _apply(store, resource, event)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Our labels and kinds are no secret: an object of a tenant's may have any content.
            metrics.invalid_objects.labels(resource.plural).inc()
            log.warning("ignored an invalid object of %s: %r", resource.plural, error)
            return
        if key is not None:
            wake(key)

    def report(resource: Resource, event: kopf.RawEvent) -> None:
        ours.call_soon_threadsafe(received, resource, event, context=context)

    stopper: Future[Callable[[], object]] = Future()
    kopfs = _serve(_registry(report), namespaces, ready, stopper)
    serving = asyncio.create_task(asyncio.to_thread(asyncio.run, kopfs))
    try:
        await asyncio.shield(serving)
    finally:
        if not serving.done():
            stop = await asyncio.wrap_future(stopper)
            stop()
            await serving


async def _serve(
    registry: kopf.OperatorRegistry,
    namespaces: Sequence[str],
    ready: threading.Event,
    stopper: "Future[Callable[[], object]]",
) -> None:
    """Runs in kopf's own thread; `stopper` gets a function that stops it from any other."""
    stop = asyncio.Event()
    stopper.set_result(partial(asyncio.get_running_loop().call_soon_threadsafe, stop.set))
    await kopf.operator(
        registry=registry,
        settings=_settings(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
        ready_flag=ready,
        stop_flag=stop,
    )


def _registry(report: Callable[[Resource, kopf.RawEvent], None]) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="login")(_login)
    for resource in SELECTORS:
        selector = (resource.group, resource.version, resource.plural)
        name = f"report-{resource.plural}"
        kopf.on.event(*selector, registry=registry, id=name)(_handler(partial(report, resource)))
    return registry


def _handler(report: Callable[[kopf.RawEvent], None]) -> Callable[..., Coroutine[Any, Any, None]]:
    async def handle(event: kopf.RawEvent, **_: Any) -> None:
        # A coroutine, because kopf runs plain functions in further threads.
        report(event)

    return handle


def _apply(store: Cache, resource: Resource, event: kopf.RawEvent) -> Key | None:
    raw = event["object"]
    if event["type"] == "DELETED":
        return store.drop(resource, (raw["metadata"]["namespace"], raw["metadata"]["name"]))
    return store.put(resource, raw)


def _login(**arguments: Any) -> kopf.ConnectionInfo | None:
    """The service account of a pod, whose token is read again once it is refused; else the
    kubeconfig."""
    in_pod = kopf.login_with_service_account(**arguments)
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if in_pod is None or not host:
        return kopf.login_via_client(**arguments)
    # kopf's own address needs the cluster's DNS, which a pod on the host's network lacks.
    host = f"[{host}]" if ":" in host else host
    return replace(in_pod, server=f"https://{host}:{port}")


class _NoEssence(kopf.DiffBaseStorage):
    """kopf is not asked what changed in an object; by default it copies all of it at each event."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        raise AssertionError("kopf stores nothing without handlers of changes")


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    # The operator has no right to list CRDs and namespaces; missing kinds are found at the start.
    settings.scanning.disabled = True
    settings.persistence.diffbase_storage = _NoEssence()
    settings.watching.chunk_size = CHUNK
    # Events in kopf's queues may be dropped at the end.
    settings.queueing.idle_timeout = 0.5
    settings.queueing.exit_timeout = 0.5
    settings.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = SERVER_TIMEOUT_SECONDS + 10
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = INACTIVITY_SECONDS
    for resource, selector in SELECTORS.items():
        if resource is not JOBS:
            settings.watching.label_selectors[resource.plural] = selector
    return settings
