"""The producers' side of the buffer: who may start what and when, and leases that end badly.

Aspects: weights, staleness gate, capacity, sharing, failures, dead producers, deadlines, poison
prompts, late completions, cancelled waits.
"""

import asyncio

import pytest

from unit.pipeline.buffers import Group, complete_all, make_buffer, serials, trained_step
from unit.pipeline.virtual_time import settled


async def test_a_producer_gets_prompts_in_order_up_to_its_limit():
    buffer = make_buffer()
    buffer.loaded("p", 0)

    assert serials(await buffer.lease("p", 3)) == [0, 1, 2]
    assert buffer.running == 3


async def test_a_lease_names_its_producer_and_has_an_id_of_its_own():
    buffer = make_buffer()
    buffer.loaded("p", 0)

    leases = await buffer.lease("p", 3)

    assert {lease.producer for lease in leases} == {"p"}
    assert len({lease.id for lease in leases}) == 3


async def test_a_producer_without_weights_waits_until_it_has_some():
    buffer = make_buffer()
    waiting = asyncio.create_task(buffer.lease("p", 1))
    assert not await settled(waiting)

    buffer.loaded("p", 0)

    assert serials(await waiting) == [0]


async def test_a_producer_runs_at_most_the_steps_its_weights_may_serve():
    buffer = make_buffer(max_staleness=1)
    buffer.loaded("p", 0)

    assert len(await buffer.lease("p", 100)) == 2 * 2
    assert not await settled(asyncio.create_task(buffer.lease("p", 1)))


async def test_newer_weights_wake_a_waiting_producer():
    buffer = make_buffer(max_staleness=0)
    await trained_step(buffer)
    waiting = asyncio.create_task(buffer.lease("p", 5))
    assert not await settled(waiting)

    buffer.loaded("p", 1)

    assert serials(await waiting) == [2, 3]


async def test_every_producer_is_bounded_by_its_own_weights():
    buffer = make_buffer(max_staleness=0)
    buffer.loaded("old", 0)
    await trained_step(buffer, "new")
    lagging = asyncio.create_task(buffer.lease("old", 1))
    await settled(lagging)

    buffer.loaded("new", 1)

    assert serials(await buffer.lease("new", 1)) == [2]
    assert not await settled(lagging)


async def test_capacity_bounds_groups_in_flight_until_a_take():
    buffer = make_buffer(capacity=3, max_staleness=50)
    buffer.loaded("p", 0)
    assert len(await buffer.lease("p", 100)) == 3
    waiting = asyncio.create_task(buffer.lease("p", 100))
    assert not await settled(waiting)

    take = asyncio.create_task(buffer.take())

    assert serials(await waiting) == [3, 4]
    take.cancel()


async def test_complete_groups_count_against_the_capacity():
    buffer = make_buffer(capacity=3, max_staleness=50)
    buffer.loaded("p", 0)
    complete_all(buffer, await buffer.lease("p", 3), 0)

    assert buffer.depth == 3
    assert not await settled(asyncio.create_task(buffer.lease("p", 1)))


async def test_capacity_zero_starts_prompts_only_for_a_pending_take():
    buffer = make_buffer(capacity=0)
    buffer.loaded("p", 0)
    waiting = asyncio.create_task(buffer.lease("p", 100))
    assert not await settled(waiting)

    take = asyncio.create_task(buffer.take())
    complete_all(buffer, await waiting, 0)

    assert (await take).serials == (0, 1)


async def test_producers_that_wait_share_what_may_start():
    buffer = make_buffer(groups_per_step=8, max_staleness=0)
    waiting = [asyncio.create_task(buffer.lease(name, 100)) for name in ("a", "b", "c")]
    await settled(waiting[0])

    for name in ("a", "b", "c"):
        buffer.loaded(name, 0)

    assert [len(leases) for leases in await asyncio.gather(*waiting)] == [3, 3, 2]


async def test_a_producer_whose_weights_come_first_leaves_a_share_to_the_others():
    buffer = make_buffer(groups_per_step=8, max_staleness=0)
    first, second = (asyncio.create_task(buffer.lease(name, 100)) for name in ("a", "b"))
    await settled(first)

    buffer.loaded("a", 0)
    assert len(await first) == 4
    buffer.loaded("b", 0)
    assert len(await second) == 4


async def test_the_producer_that_waited_longest_is_served_first():
    buffer = make_buffer(groups_per_step=1, max_staleness=0)
    for name in ("a", "b"):
        buffer.loaded(name, 0)
    (lease,) = await buffer.lease("a", 1)
    waiting = {}
    for name in ("b", "a"):
        waiting[name] = asyncio.create_task(buffer.lease(name, 1))
        await settled(waiting[name])

    buffer.complete(lease, Group(0), keep=False)

    assert await settled(waiting["b"])
    assert not await settled(waiting["a"])


async def test_a_failed_prompt_is_leased_again_to_any_producer():
    buffer = make_buffer(max_staleness=0)
    for name in ("a", "b"):
        buffer.loaded(name, 0)
    first, _ = await buffer.lease("a", 2)
    waiting = asyncio.create_task(buffer.lease("b", 2))
    assert not await settled(waiting)

    buffer.fail(first)

    (again,) = await waiting
    assert (again.prompt.serial, again.prompt.seed) == (0, first.prompt.seed)
    assert again.prompt.attempt == 1
    assert buffer.counts.requeued == 1


async def test_all_prompts_of_a_lost_producer_are_requeued_and_no_others():
    buffer = make_buffer()
    for name in ("dead", "alive"):
        buffer.loaded(name, 0)
    await buffer.lease("dead", 2)
    await buffer.lease("alive", 2)

    buffer.release("dead")

    assert buffer.running == 2
    assert serials(await buffer.lease("alive", 10)) == [0, 1]


async def test_a_requeued_prompt_is_leased_again_any_number_of_times():
    buffer = make_buffer(max_lease_attempts=2)
    buffer.loaded("p", 0)
    for _ in range(5):
        first, *rest = await buffer.lease("p", 3)
        buffer.requeue([first, *rest])
        assert (buffer.running, buffer.counts.dropped) == (0, 0)

    leases = await buffer.lease("p", 3)

    assert serials(leases) == [0, 1, 2]
    assert buffer.counts.requeued == 5 * 3


async def test_requeueing_a_completed_lease_changes_nothing():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    done, other = await buffer.lease("p", 2)
    buffer.complete(done, Group(0), keep=True)

    buffer.requeue([done, other])

    assert (buffer.depth, buffer.running, buffer.counts.requeued) == (1, 0, 1)


async def test_a_released_producer_gets_nothing_before_it_has_loaded_weights_again():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    buffer.release("p")
    waiting = asyncio.create_task(buffer.lease("p", 1))
    assert not await settled(waiting)

    buffer.loaded("p", 0)

    assert serials(await waiting) == [0]


async def test_releasing_a_producer_that_holds_nothing_changes_nothing():
    buffer = make_buffer()

    buffer.release("unknown")

    assert buffer.counts.requeued == 0


async def test_a_lease_is_requeued_at_its_deadline():
    buffer = make_buffer(lease_seconds=30)
    buffer.loaded("p", 0)
    await buffer.lease("p", 2)

    await asyncio.sleep(29)
    assert buffer.running == 2

    await asyncio.sleep(2)
    assert buffer.running == 0
    assert serials(await buffer.lease("p", 2)) == [0, 1]
    assert buffer.counts.requeued == 2


async def test_a_lease_that_expires_is_named_in_the_log(caplog: pytest.LogCaptureFixture):
    buffer = make_buffer(lease_seconds=30)
    buffer.loaded("p", 0)
    (lease,) = await buffer.lease("p", 1)

    await asyncio.sleep(31)

    assert f"row {lease.prompt.row}: no completion from p in time" in caplog.text


async def test_a_lease_that_ended_in_time_does_not_expire(caplog: pytest.LogCaptureFixture):
    buffer = make_buffer(lease_seconds=30)
    buffer.loaded("p", 0)
    complete_all(buffer, await buffer.lease("p", 1), 0)

    await asyncio.sleep(100)

    assert buffer.counts.requeued == 0
    assert buffer.depth == 1
    assert not caplog.text


async def test_a_completion_after_the_deadline_is_ignored():
    buffer = make_buffer(lease_seconds=30)
    buffer.loaded("p", 0)
    (late,) = await buffer.lease("p", 1)
    await asyncio.sleep(31)
    (again,) = await buffer.lease("p", 1)

    assert not buffer.complete(late, Group(0), keep=True)
    assert not buffer.complete(late, Group(0), keep=False)
    assert buffer.complete(again, Group(0), keep=True)
    assert buffer.depth == 1


async def test_a_completion_of_a_released_producer_is_ignored():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    (lease,) = await buffer.lease("p", 1)
    buffer.release("p")

    assert not buffer.complete(lease, Group(0), keep=True)
    assert buffer.depth == 0


async def test_a_lease_completes_only_once():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    (lease,) = await buffer.lease("p", 1)

    assert buffer.complete(lease, Group(0), keep=True)
    assert not buffer.complete(lease, Group(0), keep=True)
    assert buffer.depth == 1


async def test_failing_a_lease_that_has_ended_changes_nothing():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    (lease,) = await buffer.lease("p", 1)
    buffer.complete(lease, Group(0), keep=True)

    buffer.fail(lease)

    assert buffer.counts.requeued == 0
    assert buffer.depth == 1


async def test_a_prompt_that_fails_too_often_is_dropped_and_named(caplog: pytest.LogCaptureFixture):
    buffer = make_buffer(count=1, max_lease_attempts=3)
    buffer.loaded("p", 0)
    for _ in range(3):
        (lease,) = await buffer.lease("p", 1)
        buffer.fail(lease)

    assert buffer.counts.dropped == 1
    assert buffer.counts.requeued == 2
    assert buffer.state_dict()["done_below"] == 1
    assert f"row {lease.prompt.row}: dropped after 3 attempts" in caplog.text


async def test_a_cancelled_lease_call_holds_no_prompt():
    buffer = make_buffer()
    waiting = asyncio.create_task(buffer.lease("p", 2))
    await settled(waiting)

    buffer.loaded("p", 0)
    waiting.cancel()
    await settled(waiting)

    assert waiting.cancelled()
    assert buffer.running == 0
    assert serials(await buffer.lease("p", 2)) == [0, 1]


async def test_what_may_start_goes_first_to_the_producer_with_the_fewest_prompts():
    buffer = make_buffer(groups_per_step=4, max_staleness=0)
    for name in ("a", "b"):
        buffer.loaded(name, 0)
    held = await buffer.lease("a", 3)
    await buffer.lease("b", 1)
    more, first = (asyncio.create_task(buffer.lease(name, 1)) for name in ("a", "b"))
    assert not await settled(more)

    buffer.requeue(held[:1])

    assert serials(await first) == [0]
    assert not await settled(more)


async def test_nothing_is_queued_ahead_while_another_producer_could_work():
    buffer = make_buffer(groups_per_step=8, max_staleness=0)
    first, second = (asyncio.create_task(buffer.lease(name, 4, 4)) for name in ("a", "b"))
    await settled(first)
    buffer.loaded("a", 0)
    assert len(await first) == 4

    ahead = asyncio.create_task(buffer.lease("a", 4, 4))
    assert not await settled(ahead)
    buffer.loaded("b", 0)

    assert len(await second) == 4


async def test_a_producer_queues_ahead_once_all_others_have_work():
    buffer = make_buffer(groups_per_step=8, max_staleness=0)
    for name in ("a", "b"):
        buffer.loaded(name, 0)
    await buffer.lease("a", 2, 2)
    await buffer.lease("b", 2, 2)

    assert len(await buffer.lease("a", 2, 2)) == 2


async def test_an_answered_prompt_no_longer_counts_as_work():
    buffer = make_buffer(groups_per_step=8, max_staleness=0)
    buffer.loaded("a", 0)
    held = await buffer.lease("a", 2, 2)
    idle = asyncio.create_task(buffer.lease("b", 2, 2))  # no weights yet
    await settled(idle)
    ahead = asyncio.create_task(buffer.lease("a", 2, 2))
    assert not await settled(ahead)

    buffer.answered(held[0])
    complete_all(buffer, held[:1], 0)

    assert len(await ahead) == 1
    idle.cancel()


async def test_prompts_granted_to_a_call_that_is_cancelled_return_to_the_data():
    buffer = make_buffer()
    waiting = asyncio.create_task(buffer.lease("p", 2))
    await settled(waiting)

    buffer.loaded("p", 0)
    waiting.cancel()
    await asyncio.wait({waiting})

    assert waiting.cancelled()
    assert buffer.running == 0
    assert serials(await buffer.lease("p", 2)) == [0, 1]
