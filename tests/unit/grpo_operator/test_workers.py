"""Reconciling many jobs concurrently.

Aspects: one reconciliation at a time for each key, a wake during one is not lost, timers, failures,
stopping.
"""

import asyncio
import itertools

import pytest

from grpo_operator.clients.kube import UnavailableError
from grpo_operator.controller.workers import Workers, current_job
from grpo_operator.metrics import Metrics
from grpo_operator.policies.retry import backoff
from unit.pipeline import virtual_time

A, B = ("lab", "a"), ("lab", "b")


class Reconciliations:
    """Records reconciliations; each lasts until it is finished."""

    def __init__(self):
        self.started = asyncio.Queue()
        self.gates = {}
        self.running = {}
        self.delay = None

    async def __call__(self, key, woken):
        self.running[key] = self.running.get(key, 0) + 1
        assert self.running[key] == 1, "a key twice at once"
        gate = self.gates[key] = asyncio.Event()
        self.started.put_nowait(key)
        try:
            await gate.wait()
        finally:
            self.running[key] -= 1
        return self.delay

    async def finish(self, key):
        self.gates[key].set()
        await asyncio.sleep(0)


async def next_key(calls):
    return await asyncio.wait_for(calls.started.get(), 5)


@pytest.fixture
async def calls():
    return Reconciliations()


@pytest.fixture
async def workers(calls):
    workers = Workers(calls, Metrics())
    task = asyncio.create_task(workers.run())
    await asyncio.sleep(0)
    yield workers
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_many_wakes_are_one_reconciliation(workers, calls):
    for _ in range(5):
        workers.wake(A)
    assert await next_key(calls) == A
    await calls.finish(A)
    await asyncio.sleep(0.05)
    assert calls.started.empty()


async def test_a_wake_during_a_reconciliation_causes_another(workers, calls):
    workers.wake(A)
    await next_key(calls)
    workers.wake(A)
    await calls.finish(A)
    assert await next_key(calls) == A


async def test_jobs_are_reconciled_concurrently(workers, calls):
    for number in range(100):
        workers.wake(("lab", str(number)))
    assert len({await next_key(calls) for _ in range(100)}) == 100


async def test_a_reconciliation_may_requeue_its_job(workers, calls):
    calls.delay = 0.01
    workers.wake(A)
    await next_key(calls)
    await calls.finish(A)
    assert await next_key(calls) == A


async def test_a_failure_is_tried_again_after_its_backoff_and_counted():
    calls = asyncio.Queue()
    metrics = Metrics()

    async def refuse(key, woken):
        calls.put_nowait(current_job.get())
        raise UnavailableError(503, "ServiceUnavailable", "later")

    workers = Workers(refuse, metrics)
    task = asyncio.create_task(workers.run())
    await asyncio.sleep(0)
    workers.wake(A)
    assert await asyncio.wait_for(calls.get(), 5) == "lab/a"
    await asyncio.sleep(0.05)
    errors = metrics.registry.get_sample_value
    assert errors("grpo_operator_reconcile_errors_total", {"reason": "ServiceUnavailable"}) == 1
    assert calls.empty(), "tried again at once"
    workers.wake(A)
    assert await asyncio.wait_for(calls.get(), 5), "an event does not wait for the backoff"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_the_backoff_doubles_and_starts_again_where_a_creation_got_further():
    """The failures of a creation at its first object, twice, at its third, and at that again."""
    reached = iter((0, 0, 2, 2, 0))
    times = []

    async def fail(key, woken):
        times.append(asyncio.get_running_loop().time())
        error = UnavailableError(0, "", "no response")
        error.reached = next(reached)
        raise error

    async def five_times():
        workers = Workers(fail, Metrics())
        task = asyncio.create_task(workers.run())
        workers.wake(A)
        while len(times) < 5:
            await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    virtual_time.run(five_times())
    waits = [after - before for before, after in itertools.pairwise(times)]
    key = "/".join(A)
    assert waits == pytest.approx([backoff(key, count) for count in (1, 2, 1, 2)])


async def test_nothing_is_in_progress_after_the_end(calls):
    workers = Workers(calls, Metrics())
    task = asyncio.create_task(workers.run())
    await asyncio.sleep(0)
    workers.wake(A)
    await next_key(calls)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert calls.running[A] == 0
    workers.wake(B)
    await asyncio.sleep(0.05)
    assert calls.started.empty()
