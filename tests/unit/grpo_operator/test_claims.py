"""The claims of releases on namespaces.

Aspects: a free namespace, another release, replicas of one release, an end without a farewell,
outages, missing rights, namespaces without jobs.
"""

import copy
from typing import Any

import pytest

from grpo_operator.clients.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    UnavailableError,
)
from grpo_operator.controller import claims, lease
from grpo_operator.controller.cache import Cache
from grpo_operator.controller.claims import DURATION_SECONDS, GIVE_UP_SECONDS, RETRY_SECONDS, Claims
from grpo_operator.metrics import Metrics
from grpo_operator.model.resources import JOBS

LAB = "lab"


class Leases:
    """An API server with nothing but Leases."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.fault: ApiError | None = None
        self.calls = 0

    def _called(self) -> None:
        self.calls += 1
        if self.fault is not None:
            raise self.fault

    async def get(self, resource, namespace: str, name: str) -> dict[str, Any]:
        self._called()
        if namespace not in self.objects:
            raise NotFoundError(404, "NotFound", name)
        return copy.deepcopy(self.objects[namespace])

    async def create(self, resource, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        self._called()
        if namespace in self.objects:
            raise AlreadyExistsError(409, "AlreadyExists", "")
        self.objects[namespace] = copy.deepcopy(body) | {"version": 0}
        return body

    async def update(self, resource, namespace: str, body: dict[str, Any]) -> None:
        self._called()
        if self.objects[namespace]["version"] != body["version"]:
            raise ConflictError(409, "Conflict", "")
        self.objects[namespace] = copy.deepcopy(body) | {"version": body["version"] + 1}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (claims, lease):
        monkeypatch.setattr(module, "_now", clock)
    return clock


@pytest.fixture
def server() -> Leases:
    return Leases()


def release(server: Leases, name: str, *namespaces: str) -> tuple[Claims, Metrics]:
    """A release that sees a job in each namespace."""
    cache, metrics = Cache(), Metrics()
    for namespace in namespaces or (LAB,):
        metadata = {
            "namespace": namespace,
            "name": "math",
            "uid": f"{namespace}-uid",
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": "2026-01-02T03:04:05Z",
        }
        cache.put(JOBS, {"metadata": metadata, "spec": {"storage": {"claimName": "v"}}})
    return Claims(server, name, cache, metrics), metrics  # type: ignore[arg-type]


def refused(metrics: Metrics, namespace: str = LAB) -> float | None:
    labels = {"job_namespace": namespace}
    return metrics.registry.get_sample_value("grpo_operator_refused_namespaces", labels)


async def test_a_free_namespace_is_taken_with_one_write(clock, server):
    first, metrics = release(server, "ops/first")
    assert await first.holds(LAB)
    assert server.objects[LAB]["spec"]["holderIdentity"] == "ops/first"
    calls = server.calls
    assert await first.holds(LAB)
    assert (server.calls, refused(metrics)) == (calls, 0)


async def test_a_second_release_is_refused_as_long_as_the_first_renews(clock, server):
    first, _ = release(server, "ops/first")
    second, metrics = release(server, "lab/second")
    assert await first.holds(LAB)
    for _ in range(20):
        clock.now += 15
        await first.renew()
        assert not await second.holds(LAB)
        assert await first.holds(LAB)
    assert refused(metrics) == 1


async def test_a_refused_release_reconciles_nothing_and_looks_again(clock, server):
    first, _ = release(server, "ops/first")
    second, _ = release(server, "lab/second")
    assert await first.holds(LAB)
    reconciled = []

    async def reconcile(key, woken):
        reconciled.append(key)

    assert await second.guarded(reconcile)((LAB, "math"), 0.0) == RETRY_SECONDS
    assert reconciled == []
    await first.guarded(reconcile)((LAB, "math"), 0.0)
    assert reconciled == [(LAB, "math")]


async def test_jobs_of_a_refused_namespace_share_one_attempt(clock, server):
    first, _ = release(server, "ops/first")
    second, _ = release(server, "lab/second")
    assert await first.holds(LAB)
    assert not await second.holds(LAB)
    calls = server.calls
    for _ in range(100):
        assert not await second.holds(LAB)
    assert server.calls == calls


async def test_another_replica_of_the_release_continues_at_once(clock, server):
    leader, _ = release(server, "ops/first")
    assert await leader.holds(LAB)
    next_leader, _ = release(server, "ops/first")
    assert await next_leader.holds(LAB)


async def test_a_release_that_ended_is_replaced_after_the_duration(clock, server):
    first, _ = release(server, "ops/first")
    second, metrics = release(server, "lab/second")
    assert await first.holds(LAB)
    assert not await second.holds(LAB)
    clock.now += DURATION_SECONDS - 1
    assert not await second.holds(LAB)
    clock.now += RETRY_SECONDS
    assert await second.holds(LAB)
    assert refused(metrics) == 0
    assert not await first.holds(LAB), "it is now the second"


async def test_a_release_without_renewals_stops_before_another_starts(clock, server):
    first, _ = release(server, "ops/first")
    second, metrics = release(server, "lab/second")
    assert await first.holds(LAB)
    assert not await second.holds(LAB)
    server.fault = UnavailableError(0, "", "no response")
    clock.now += GIVE_UP_SECONDS
    await first.renew()
    assert not await first.holds(LAB)
    assert refused(metrics) == 1
    server.fault = None
    clock.now += RETRY_SECONDS
    assert await first.holds(LAB)
    assert not await second.holds(LAB)


async def test_missing_rights_are_reported_and_used_once_granted(clock, server):
    only, metrics = release(server, "ops/first")
    server.fault = ForbiddenError(403, "Forbidden", "no rights on leases")
    assert not await only.holds(LAB)
    assert refused(metrics) == 1
    server.fault = None
    clock.now += RETRY_SECONDS
    assert await only.holds(LAB)
    assert refused(metrics) == 0


async def test_a_namespace_without_jobs_is_no_longer_claimed(clock, server):
    only, metrics = release(server, "ops/first", LAB, "other")
    assert await only.holds(LAB)
    assert await only.holds("other")
    only._cache.drop(JOBS, (LAB, "math"))
    clock.now += 15
    await only.renew()
    assert (refused(metrics), refused(metrics, "other")) == (None, 0)
    renewed = {name: found["version"] for name, found in server.objects.items()}
    assert renewed == {LAB: 0, "other": 1}
