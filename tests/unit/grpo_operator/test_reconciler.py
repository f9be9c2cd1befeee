"""The reconciliation of a job, against a fake API server and a head that is real HTTP.

Aspects: what is written at once and what waits, that nothing is lost by waiting, what is read from
the API server, namesakes, many new jobs at once, heads that hang.
"""

import asyncio
import copy
from collections import Counter
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from grpo_operator.clients import ray as rayjobs
from grpo_operator.clients.errors import NotFoundError
from grpo_operator.clients.events import Recorder
from grpo_operator.clients.tokens import Tokens
from grpo_operator.controller.accounting import Accounting
from grpo_operator.controller.act import Actor
from grpo_operator.controller.cache import Cache
from grpo_operator.controller.observe import Observer
from grpo_operator.controller.reconciler import CREATIONS, Reconciler
from grpo_operator.controller.throttle import SETTLE_SECONDS, StatusThrottle
from grpo_operator.controller.workers import Workers
from grpo_operator.metrics import Metrics
from grpo_operator.model.naming import child_name, job_labels
from grpo_operator.model.resources import CLUSTERS, EVENTS, JOBS, PODS, SECRETS
from grpo_operator.render import ray_cluster
from grpo_operator.settings import Settings
from support.observations import NOW, UID, at, condition, job, starting

KEY = ("lab", "math")
CREATED = "2026-01-02T03:04:05Z"
ROLES = {"headgroup": "head", "consumers": "consumers", "producers": "producers"}


class ApiServer:
    """Keeps objects by kind and name; counts what is asked."""

    def __init__(self, cache):
        self.cache, self.objects, self.asked, self.version = cache, {}, Counter(), 100
        self.written = asyncio.Queue()
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

    async def list(self, resource, namespace, selector):
        self.asked["list", resource.plural] += 1
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
        },
        "spec": {},
        "status": {"conditions": [ready_condition], "containerStatuses": [container]},
    }


def status_of(state):
    return state.model_dump(mode="json", by_alias=True)


@pytest.fixture
async def api():
    return ApiServer(Cache())


@pytest.fixture
async def heads():
    return Heads()


@pytest.fixture
async def reconciler(api, heads):
    app = web.Application()
    app.router.add_route("*", "/{service}/{port}/{path:.*}", heads.answer)
    async with TestServer(app) as server, rayjobs.session() as session:
        root = str(server.make_url("")).rstrip("/")
        settings = Settings(head_url_template=f"{root}/{{service}}/{{port}}")
        tokens = Tokens(api, b"key")
        observer = Observer(api, session, api.cache, tokens, settings)
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


@pytest.fixture
async def waiting_for_pods(api, reconciler):
    """A job that waits for its pods, and whose status was just written."""
    api.put(JOBS, raw_job(**status_of(starting())))
    api.put(CLUSTERS, raw_cluster())
    for group in ROLES:
        api.put(PODS, raw_pod(group))
    await reconciler.reconcile(KEY, 0.0)
    api.asked.clear()


@pytest.fixture
async def submitted(api):
    """A job whose driver has just been started."""
    add_submitted(api, "math")


def add_submitted(api, name):
    ready, training = (condition(kind, "True") for kind in ("ClusterReady", "Training"))
    status = starting(0).model_copy(update={"conditions": (ready, training)})
    api.put(JOBS, raw_job(name, **status_of(status)))
    api.put(CLUSTERS, raw_cluster(name))
    for group in ROLES:
        api.put(PODS, raw_pod(group, ready=True, name=name))


async def test_pods_that_become_ready_one_by_one_are_one_write(api, reconciler, waiting_for_pods):
    api.put(PODS, raw_pod("producers", ready=True))
    after = await reconciler.reconcile(KEY, 0.0)
    assert api.writes == 0
    assert SETTLE_SECONDS < after <= 15 * 1.3, "throttled progress is requeued"


async def test_throttled_progress_is_written_when_it_is_due(api, reconciler, waiting_for_pods):
    reconciler.throttle.seconds = 0.0
    api.put(PODS, raw_pod("producers", waiting="ImagePullBackOff"))
    await reconciler.reconcile(KEY, 0.0)
    api.put(PODS, raw_pod("producers", 1, ready=True))
    await reconciler.reconcile(KEY, 0.0)
    assert api.writes == 2
    assert api.objects[JOBS, "math"]["status"]["workers"]["producersReady"] == 1


async def test_a_new_reason_is_written_at_once(api, reconciler, waiting_for_pods):
    api.put(PODS, raw_pod("consumers", waiting="ImagePullBackOff"))
    await reconciler.reconcile(KEY, 0.0)
    assert api.writes == 1


async def test_a_running_driver_needs_no_read_from_the_api_server(api, reconciler, submitted):
    await reconciler.reconcile(KEY, 0.0)
    assert api.objects[JOBS, "math"]["status"]["phase"] == "Running"
    assert api.asked == {
        ("patch", "status"): 1,
        ("create", EVENTS.plural): 1,
    }


async def test_before_an_action_everything_is_read_live(api, reconciler):
    api.put(JOBS, raw_job())
    api.objects[JOBS, "math"]["spec"]["suspend"] = True  # not reported by a watch yet
    api.objects[JOBS, "math"]["metadata"]["generation"] = 2
    await reconciler.reconcile(KEY, 0.0)
    assert api.objects[JOBS, "math"]["status"]["phase"] == "Suspended"
    assert ("create", CLUSTERS.plural) not in api.asked


async def test_pods_of_a_cluster_that_is_deleted_while_it_is_read_are_found(api, reconciler):
    api.put(JOBS, raw_job())
    api.after_reading[CLUSTERS] = lambda: api.put(PODS, raw_pod("headgroup"))
    await reconciler.reconcile(KEY, 0.0)
    assert ("create", CLUSTERS.plural) not in api.asked
    assert api.objects[JOBS, "math"]["status"]["conditions"][1]["reason"] == "OldPodsLeaving"


async def test_no_secret_is_read_for_a_token(api, reconciler):
    api.put(JOBS, raw_job())
    await reconciler.reconcile(KEY, 0.0)
    api.put(CLUSTERS, raw_cluster())
    for group in ROLES:
        api.put(PODS, raw_pod(group, ready=True))
    await reconciler.reconcile(KEY, 0.0)
    assert api.objects[JOBS, "math"]["status"]["phase"] == "Running"
    assert ("get", SECRETS.plural) not in api.asked


async def test_nothing_is_done_for_a_job_whose_name_another_job_has(api, reconciler):
    api.put(JOBS, raw_job())
    api.objects[JOBS, "math"] = raw_job(uid="ffffffff-1")
    api.objects[JOBS, "math"]["metadata"]["resourceVersion"] = "999"
    after = await reconciler.reconcile(KEY, 0.0)
    assert after < 1
    assert ("create", CLUSTERS.plural) not in api.asked
    assert api.cache.job(KEY).uid == "ffffffff-1"


@asynccontextmanager
async def reconciling(reconciler, *names):
    """Reconcile jobs until the block ends."""
    workers = Workers(reconciler.reconcile, Metrics())
    running = asyncio.create_task(workers.run())
    for name in names:
        workers.wake(("lab", name))
    try:
        async with asyncio.timeout(20):
            yield workers
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_few_of_many_new_jobs_start_at_once_and_delay_no_other(api, reconciler):
    new = [f"new-{number}" for number in range(50)]
    for number, name in enumerate(new):
        api.put(JOBS, raw_job(name, uid=f"{number:08}-uid"))
    add_submitted(api, "math")
    api.admits.clear()
    async with reconciling(reconciler, *new, "math"):
        assert await api.written.get() == "math"
        assert api.asked["get", CLUSTERS.plural] <= CREATIONS
        api.admits.set()
        assert {await api.written.get() for _ in new} == set(new)
    assert api.asked["create", CLUSTERS.plural] == len(new)


async def test_heads_that_hang_delay_no_other_job(api, heads, reconciler):
    hanging = [f"hanging-{number}" for number in range(120)]
    heads.hanging.update(hanging)
    for name in [*hanging, "math"]:
        add_submitted(api, name)
    async with reconciling(reconciler, *hanging) as workers:
        assert {await heads.asked.get() for _ in hanging} == heads.hanging
        workers.wake(KEY)
        assert await api.written.get() == "math"
        assert await heads.asked.get() == "math"
        assert heads.asked.empty(), "a head that hangs was asked again before"


class Clock:
    """Observes the job's head at a time."""

    def __init__(self, api, heads, reconciler):
        self.api, self.heads, self.reconciler = api, heads, reconciler

    async def observe(self, seconds, step=None, *, ray=True):
        """The head reports `step`; None is a driver that does not respond."""
        self.heads.step, self.heads.ray = step, ray
        job = self.api.cache.job(KEY)
        return await self.reconciler.observer.observe_cached(job, at(seconds))


@pytest.fixture
async def clock(api, heads, reconciler, submitted):
    return Clock(api, heads, reconciler)


async def test_the_time_at_a_step_counts_from_its_first_response(clock):
    assert (await clock.observe(0, step=3)).step_since == at(0)
    assert (await clock.observe(40, step=3)).step_since == at(0)
    assert (await clock.observe(50, step=4)).step_since == at(50)


async def test_the_time_of_a_silence_is_no_time_at_a_step(clock):
    await clock.observe(0, step=3)
    silent = await clock.observe(5000, ray=False)
    assert (silent.step_since, silent.silent_since) == (None, at(0))
    assert (await clock.observe(5001, step=3)).step_since == at(5001)


async def test_a_driver_that_has_not_responded_yet_is_not_silent_while_ray_responds(clock):
    assert (await clock.observe(0)).silent_since is None
    assert (await clock.observe(5000)).silent_since is None


async def test_a_driver_that_stops_responding_is_silent_though_ray_responds(clock):
    await clock.observe(0, step=3)
    observed = await clock.observe(100)
    assert observed.silent_since == at(0)
    assert observed.ray_jobs
