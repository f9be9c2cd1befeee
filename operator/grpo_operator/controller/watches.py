"""kopf's part: it watches, lists and reconnects, and tells the store of every event.

Only raw events are used: kopf then writes nothing, neither finalizers nor annotations.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any

import kopf

from ..model.resources import JOBS, Resource
from .audit import SELECTORS
from .cache import Cache, Key

SERVER_TIMEOUT_SECONDS = 300
CHUNK = 200
"""Objects of a list that are in memory at once: a pod takes 60 KB."""
INACTIVITY_SECONDS = 70


async def watch(
    store: Cache, wake: Callable[[Key], None], namespaces: Sequence[str], ready: threading.Event
) -> None:
    """Feed the store and wake jobs until cancelled; `ready` is set when kopf has started.

    kopf takes every task and signal of its event loop for its own, so it has a loop to itself in a
    thread. What it sees crosses into this loop, where alone the store is touched.
    """
    ours = asyncio.get_running_loop()
    # Without it a job's timers would carry the context of kopf's handler, which holds the object.
    context = copy_context()

    def told(resource: Resource, event: kopf.RawEvent) -> None:
        key = _take_in(store, resource, event)
        if key is not None:
            wake(key)

    def tell(resource: Resource, event: kopf.RawEvent) -> None:
        ours.call_soon_threadsafe(told, resource, event, context=context)

    stopper: Future[Callable[[], object]] = Future()
    kopfs = _serve(_registry(tell), namespaces, ready, stopper)
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
    """In kopf's own thread. `stopper` gets a function that ends it from any other."""
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


def _registry(tell: Callable[[Resource, kopf.RawEvent], None]) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="login")(_login)
    for resource in SELECTORS:
        selector = (resource.group, resource.version, resource.plural)
        name = f"tell-{resource.plural}"
        kopf.on.event(*selector, registry=registry, id=name)(_handler(partial(tell, resource)))
    return registry


def _handler(tell: Callable[[kopf.RawEvent], None]) -> Callable[..., Coroutine[Any, Any, None]]:
    async def handle(event: kopf.RawEvent, **_: Any) -> None:
        # A coroutine, since kopf runs plain functions in yet other threads.
        tell(event)

    return handle


def _take_in(store: Cache, resource: Resource, event: kopf.RawEvent) -> Key | None:
    raw = event["object"]
    if event["type"] == "DELETED":
        return store.drop(resource, (raw["metadata"]["namespace"], raw["metadata"]["name"]))
    return store.put(resource, raw)


def _login(**arguments: Any) -> kopf.ConnectionInfo | None:
    """In a pod its service account, whose token is read anew once it is refused; elsewhere the
    kubeconfig."""
    in_pod = kopf.login_with_service_account(**arguments)
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if in_pod is None or not host:
        return kopf.login_via_client(**arguments)
    # kopf's own address needs the cluster's DNS, which a pod on the host's network lacks.
    host = f"[{host}]" if ":" in host else host
    return replace(in_pod, server=f"https://{host}:{port}")


class _NoEssence(kopf.DiffBaseStorage):
    """Of what changed in an object nobody asks kopf, which would copy all of it at every event."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        raise AssertionError("kopf stores nothing without handlers of changes")


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    # Without the rights to list definitions and namespaces; missing kinds are found at the start.
    settings.scanning.disabled = True
    settings.persistence.diffbase_storage = _NoEssence()
    settings.watching.chunk_size = CHUNK
    # Nothing waits in kopf's queues that may not be dropped at the end.
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
