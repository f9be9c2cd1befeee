"""Groups without signal, which dynamic sampling filters out of a batch.

Aspects: what takes their place; counts; the attempts of a step; steps of which nothing is kept.
"""

import asyncio

import pytest

from unit.pipeline.buffers import Group, complete_all, filter_next, make_buffer
from unit.pipeline.virtual_time import settled


async def test_a_filtered_group_is_replaced_and_finished_with_its_step():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    await filter_next(buffer, 1)
    complete_all(buffer, await buffer.lease("p", 2), 0)

    batch = await buffer.take()
    assert (batch.serials, batch.filtered) == ((1, 2), (0,))
    assert buffer.state_dict()["done_below"] == 0

    buffer.commit(batch)
    assert buffer.state_dict()["done_below"] == 3


async def test_filtered_groups_are_counted_at_once_and_once():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    await filter_next(buffer, 2)
    assert buffer.counts.filtered == 2

    complete_all(buffer, await buffer.lease("p", 2), 0)
    batch = await buffer.take()
    assert buffer.counts.filtered == 2
    buffer.commit(batch)
    assert buffer.counts.filtered == 2


async def test_a_step_whose_attempts_are_used_up_trains_on_what_was_kept():
    buffer = make_buffer(groups_per_step=2, max_attempts=2)
    buffer.loaded("p", 0)
    take = asyncio.create_task(buffer.take())
    (kept,) = await buffer.lease("p", 1)
    buffer.complete(kept, Group(0), keep=True)
    await filter_next(buffer, 2)
    assert not await settled(take)

    await filter_next(buffer, 1)

    assert (await take).serials == (0,)


async def test_attempts_are_counted_for_each_step():
    buffer = make_buffer(groups_per_step=2, max_attempts=2, max_staleness=5)
    buffer.loaded("p", 0)
    await filter_next(buffer, 1)
    complete_all(buffer, await buffer.lease("p", 2), 0)
    await buffer.take()
    await filter_next(buffer, 2)
    (kept,) = await buffer.lease("p", 1)
    buffer.complete(kept, Group(0), keep=True)

    assert not await settled(asyncio.create_task(buffer.take()))


async def test_on_policy_a_step_starts_no_prompt_beyond_its_attempts():
    buffer = make_buffer(groups_per_step=4, max_attempts=1, max_staleness=0)
    buffer.loaded("p", 0)
    await filter_next(buffer, 1)

    assert len(await buffer.lease("p", 100)) == 3


async def test_a_step_without_any_kept_group_gets_all_attempts_again_and_logs_it(
    caplog: pytest.LogCaptureFixture,
):
    buffer = make_buffer(groups_per_step=2, max_attempts=2, max_staleness=0)
    buffer.loaded("p", 0)
    take = asyncio.create_task(buffer.take())
    await filter_next(buffer, 4)
    assert not await settled(take)
    assert "step 0: kept none of 4 groups" in caplog.text

    complete_all(buffer, await buffer.lease("p", 2), 0)
    assert (await take).serials == (4, 5)
