"""The reconciliation of a job, against a fake API server and a head that is real HTTP.

Aspects: what is written at once and what waits, that nothing is lost by waiting, what is read from
the API server, namesakes, many new jobs at once, heads that hang.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

from grpo_operator.controller.reconciler import CREATIONS
from grpo_operator.controller.throttle import SETTLE_SECONDS
from grpo_operator.controller.workers import Workers
from grpo_operator.metrics import Metrics
from grpo_operator.model.resources import CLUSTERS, EVENTS, JOBS, PODS, SECRETS
from support.observations import starting
from support.reconciliation import (
    KEY,
    ROLES,
    add_submitted,
    raw_cluster,
    raw_job,
    raw_pod,
    status_of,
)


@pytest.fixture
async def waiting_for_pods(api, reconciler):
    """A job that waits for its pods, and whose status was just written."""
    api.put(JOBS, raw_job(**status_of(starting())))
    api.put(CLUSTERS, raw_cluster())
    for group in ROLES:
        api.put(PODS, raw_pod(group))
    await reconciler.reconcile(KEY, 0.0)
    api.asked.clear()


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
