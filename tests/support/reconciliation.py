"""The parts around a reconciler: a fake API server, a head that is real HTTP, raw objects."""

import asyncio
import copy
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer

from grpo_operator.clients import ray as rayjobs
from grpo_operator.clients.errors import NotFoundError
from grpo_operator.clients.events import Recorder
from grpo_operator.clients.tokens import Tokens
from grpo_operator.controller.accounting import Accounting
from grpo_operator.controller.act import Actor
from grpo_operator.controller.causes import Causes
from grpo_operator.controller.observe import Observer
from grpo_operator.controller.reconciler import Reconciler
from grpo_operator.controller.throttle import StatusThrottle
from grpo_operator.metrics import Metrics
from grpo_operator.model.naming import child_name, job_labels
from grpo_operator.model.resources import CLUSTERS, EVENTS, JOBS, PODS
from grpo_operator.render import ray_cluster
from grpo_operator.settings import Settings
from support.observations import NOW, UID, condition, job, starting

KEY = ("lab", "math")
CREATED = "2026-01-02T03:04:05Z"
ROLES = {"headgroup": "head", "consumers": "consumers", "producers": "producers"}


class ApiServer:
    """Keeps objects by kind and name; counts what is asked."""

    def __init__(self, cache):
        self.cache, self.objects, self.asked, self.version = cache, {}, Counter(), 100
        self.written = asyncio.Queue()
        self.events = {}
        """Events by the selector of their object."""
        self.after_reading = {}
        """By kind, what happens once an object of it has been read."""
        self.admits = asyncio.Event()
        """Nothing but Events is created before."""
        self.admits.set()

    def put(self, resource, raw):
        """An object exists, and its watch has reported it."""
        self.version += 1
        raw["metadata"]["resourceVersion"] = str(self.version)
        self.objects[resource, raw["metadata"]["name"]] = raw
        self.cache.put(resource, copy.deepcopy(raw))

    async def get(self, resource, namespace, name):
        self.asked["get", resource.plural] += 1
        try:
            return copy.deepcopy(self.objects[resource, name])
        except KeyError:
            raise NotFoundError(404, "NotFound", name) from None
        finally:
            self.after_reading.get(resource, lambda: None)()

    async def list(self, resource, namespace, selector="", *, field_selector="", limit=None):
        self.asked["list", resource.plural] += 1
        if resource is EVENTS:
            return {"items": self.events.get(field_selector, [])}
        label, _, value = selector.partition("=")
        found = [raw for (kind, _), raw in self.objects.items() if kind is resource]
        items = [raw for raw in found if raw["metadata"]["labels"][label] == value]
        return {"items": copy.deepcopy(items)}

    async def create(self, resource, namespace, body):
        self.asked["create", resource.plural] += 1
        if resource is not EVENTS:
            await self.admits.wait()
        return body

    async def patch(self, resource, namespace, name, body, *, content_type, subresource=""):
        assert (resource, subresource) == (JOBS, "status")
        self.asked["patch", "status"] += 1
        self.version += 1
        raw = self.objects[resource, name]
        raw["status"] = body["status"]
        raw["metadata"]["resourceVersion"] = str(self.version)
        self.written.put_nowait(name)
        return copy.deepcopy(raw)

    @property
    def writes(self):
        return self.asked["patch", "status"]


class Heads:
    """The heads of all jobs; those of the jobs named in `hanging` take connections and no more."""

    def __init__(self):
        self.hanging, self.asked, self.release = set(), asyncio.Queue(), asyncio.Event()
        self.step, self.ray = 0, True

    async def answer(self, request):
        service, path = request.match_info["service"], request.match_info["path"]
        self.asked.put_nowait(service)
        if service in self.hanging:
            await self.release.wait()
        if path == "progress":
            if self.step is None:
                return web.Response(status=503)
            progress = {"step": self.step, "novelty": 1}
            return web.json_response({"attempt": 1, "state": "running", "progress": progress})
        if not self.ray:
            return web.Response(status=503)
        return web.json_response([{"submission_id": f"{UID[:8]}-1", "status": "RUNNING"}])


def raw_job(name="math", uid=UID, **status):
    return {
        "apiVersion": "grpo-operator.io/v1alpha1",
        "kind": "GRPOJob",
        "metadata": {
            "namespace": "lab",
            "name": name,
            "uid": uid,
            "generation": 1,
            "creationTimestamp": CREATED,
        },
        "spec": {"storage": {"claimName": "volume"}},
        "status": status,
    }


def raw_cluster(name="math"):
    raw = ray_cluster(job(), Settings())
    raw["metadata"] |= {"name": child_name(name, UID), "uid": f"{name}-cluster"}
    raw["metadata"]["labels"] = job_labels(name, UID)
    return raw | {"status": {"head": {"serviceName": name}}}


def raw_pod(group, number=0, ready=False, waiting=None, name="math"):
    container = {"name": "ray", "state": {"waiting": {"reason": waiting}} if waiting else {}}
    ready_condition = {
        "type": "Ready",
        "status": str(ready),
        "lastTransitionTime": CREATED,
    }
    return {
        "metadata": {
            "namespace": "lab",
            "name": f"{name}-{group}-{number}",
            "uid": f"{name}-{group}-{number}",
            "creationTimestamp": CREATED,
            "labels": {**job_labels(name, UID), "ray.io/group": group},
            "ownerReferences": [{"kind": "RayCluster", "controller": True}],
        },
        "spec": {},
        "status": {"conditions": [ready_condition], "containerStatuses": [container]},
    }


def status_of(state):
    return state.model_dump(mode="json", by_alias=True)


def add_submitted(api, name):
    ready, training = (condition(kind, "True") for kind in ("ClusterReady", "Training"))
    status = starting(0).model_copy(update={"conditions": (ready, training)})
    api.put(JOBS, raw_job(name, **status_of(status)))
    api.put(CLUSTERS, raw_cluster(name))
    for group in ROLES:
        api.put(PODS, raw_pod(group, ready=True, name=name))


@asynccontextmanager
async def reconciler_of(api: ApiServer, heads: Heads) -> AsyncIterator[Reconciler]:
    """A reconciler at a fixed time."""
    app = web.Application()
    app.router.add_route("*", "/{service}/{port}/{path:.*}", heads.answer)
    async with TestServer(app) as server, rayjobs.session() as session:
        root = str(server.make_url("")).rstrip("/")
        settings = Settings(head_url_template=f"{root}/{{service}}/{{port}}")
        tokens = Tokens(api, b"key")
        observer = Observer(api, session, api.cache, tokens, Causes(api), settings)
        accounting = Accounting(Metrics())
        actor, recorder = Actor(api, observer, tokens, settings), Recorder(api, "me")
        yield Reconciler(
            api,
            api.cache,
            observer,
            actor,
            recorder,
            accounting,
            StatusThrottle(15.0),
            clock=lambda: NOW,
        )
        heads.release.set()
