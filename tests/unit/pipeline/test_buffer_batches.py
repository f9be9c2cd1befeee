"""The trainer's side of the buffer: what a batch holds, and when it comes.

Aspects: order, prefetch, commits, staleness, slow prompts.
"""

import asyncio

import pytest

from unit.pipeline.buffers import Group, complete_all, make_buffer, serials, trained_step
from unit.pipeline.virtual_time import settled


async def test_a_batch_comes_when_it_is_full():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    take = asyncio.create_task(buffer.take())
    first, second = await buffer.lease("p", 2)

    buffer.complete(first, Group(0), keep=True)
    assert not await settled(take)
    buffer.complete(second, Group(0), keep=True)

    batch = await take
    assert (batch.step, batch.serials, batch.groups) == (0, (0, 1), (Group(0), Group(0)))
    assert buffer.next_step == 1


async def test_groups_of_a_batch_are_sorted_by_serial_whatever_their_version():
    buffer = make_buffer(groups_per_step=3, max_staleness=2, first_step=2)
    buffer.loaded("p", 2)
    groups = [Group(2), Group(1), Group(0)]
    for lease, group in zip(await buffer.lease("p", 3), groups, strict=True):
        buffer.complete(lease, group, keep=True)

    batch = await buffer.take()

    assert batch.serials == (0, 1, 2)
    assert list(batch.groups) == groups


async def test_of_equal_weights_the_oldest_prompts_are_used_first():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    complete_all(buffer, (await buffer.lease("p", 4))[::-1], 0)

    assert (await buffer.take()).serials == (0, 1)
    assert (await buffer.take()).serials == (2, 3)


async def test_a_group_of_older_weights_is_used_before_an_older_prompt_of_newer_weights():
    buffer = make_buffer(groups_per_step=1, max_staleness=2)
    buffer.loaded("p", 0)
    failed, trained, waits = await buffer.lease("p", 3)
    buffer.fail(failed)
    buffer.complete(trained, Group(0), keep=True)
    buffer.commit(await buffer.take())
    buffer.complete(waits, Group(0), keep=True)
    buffer.loaded("p", 1)
    (again,) = await buffer.lease("p", 1)
    buffer.complete(again, Group(1), keep=True)

    assert (again.prompt.serial, waits.prompt.serial) == (0, 2)
    assert (await buffer.take()).serials == (2,)
    assert (await buffer.take()).serials == (0,)


async def test_the_next_batch_may_be_taken_while_the_previous_one_is_trained():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    complete_all(buffer, await buffer.lease("p", 4), 0)

    first, second = await buffer.take(), await buffer.take()

    assert (first.step, second.step) == (0, 1)
    assert buffer.counts.trained == 0
    buffer.commit(first)
    buffer.commit(second)
    assert buffer.counts.trained == 4


async def test_only_one_take_waits_at_a_time():
    buffer = make_buffer()
    pending = asyncio.create_task(buffer.take())
    await settled(pending)

    with pytest.raises(AssertionError, match="one take at a time"):
        await buffer.take()
    pending.cancel()


async def test_a_cancelled_take_loses_no_group():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    take = asyncio.create_task(buffer.take())
    complete_all(buffer, await buffer.lease("p", 2), 0)
    take.cancel()
    assert await settled(take)

    assert (await buffer.take()).serials == (0, 1)


async def test_a_batch_is_committed_only_once():
    buffer = make_buffer()
    batch = await trained_step(buffer)

    with pytest.raises(AssertionError, match="batch 0 is committed already"):
        buffer.commit(batch)


async def test_the_state_contains_a_batch_only_after_its_commit():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    complete_all(buffer, await buffer.lease("p", 2), 0)

    batch = await buffer.take()
    assert buffer.state_dict()["done_below"] == 0
    buffer.commit(batch)
    assert buffer.state_dict()["done_below"] == 2


async def test_depth_counts_complete_groups_that_no_batch_contains():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    complete_all(buffer, await buffer.lease("p", 3), 0)
    assert buffer.depth == 3

    await buffer.take()
    assert buffer.depth == 1


async def test_a_group_that_completes_too_stale_is_requeued():
    buffer = make_buffer(max_staleness=1)
    buffer.loaded("slow", 0)
    (slow,) = await buffer.lease("slow", 1)
    for _ in range(2):
        await trained_step(buffer)

    assert buffer.complete(slow, Group(0), keep=True)

    assert buffer.depth == 0
    assert buffer.counts.requeued == 1
    assert 0 in (await trained_step(buffer)).serials


async def test_a_group_that_becomes_too_stale_in_the_buffer_is_requeued():
    buffer = make_buffer(groups_per_step=1, max_staleness=1, first_step=1)
    buffer.loaded("p", 1)
    complete_all(buffer, await buffer.lease("p", 2), version=0)

    batch = await buffer.take()

    assert batch.serials == (0,)
    assert buffer.depth == 0
    assert buffer.counts.requeued == 1


async def test_a_group_that_a_batch_requeues_is_leased_to_a_waiting_producer():
    buffer = make_buffer(groups_per_step=1, max_staleness=1, first_step=1)
    buffer.loaded("p", 1)
    leases = await buffer.lease("p", 2)
    waiting = asyncio.create_task(buffer.lease("p", 1))
    await settled(waiting)
    take = asyncio.create_task(buffer.take())
    await settled(take)

    complete_all(buffer, leases, version=0)

    assert (await take).serials == (0,)
    assert serials(await waiting) == [1]


async def test_a_prompt_that_becomes_too_stale_is_never_dropped():
    buffer = make_buffer(max_staleness=0, max_attempts=1, max_lease_attempts=1, first_step=1)
    buffer.loaded("p", 1)
    (lease,) = await buffer.lease("p", 1)

    buffer.complete(lease, Group(0), keep=True)

    assert (buffer.counts.requeued, buffer.counts.dropped) == (1, 0)
    assert serials(await buffer.lease("p", 1)) == [0]


async def test_one_slow_prompt_does_not_hold_up_the_steps_of_others():
    buffer = make_buffer(max_staleness=2)
    buffer.loaded("slow", 0)
    await buffer.lease("slow", 1)

    batches = [await trained_step(buffer) for _ in range(10)]

    assert [batch.step for batch in batches] == list(range(10))
    assert buffer.running == 1


async def test_staleness_zero_alternates_without_deadlock():
    buffer = make_buffer(count=6, max_staleness=0, capacity=0)
    steps = []

    async def produce() -> None:
        while leases := await buffer.lease("p", 100):
            complete_all(buffer, leases, buffer.next_step)

    buffer.loaded("p", 0)
    producing = asyncio.create_task(produce())
    while (batch := await buffer.take()) is not None:
        assert {group.version for group in batch.groups} == {batch.step}
        buffer.commit(batch)
        buffer.loaded("p", batch.step + 1)
        steps.append(batch.serials)

    await producing
    assert steps == [(0, 1), (2, 3), (4, 5)]
