"""How a run's last batches come, and how trainer and producers learn that no more do.

Aspects: the end of the data; the last step; episodes.
"""

import asyncio

from unit.pipeline.buffers import (
    Group,
    complete_all,
    filter_next,
    make_buffer,
    serials,
    trained_step,
)
from unit.pipeline.virtual_time import settled


async def test_data_of_which_nothing_is_kept_ends_without_a_batch():
    buffer = make_buffer(count=20, max_staleness=0)
    buffer.loaded("p", 0)
    take = asyncio.create_task(buffer.take())

    await filter_next(buffer, 20)

    assert await take is None
    assert await buffer.lease("p", 1) == ()
    assert buffer.counts.filtered == 20
    assert buffer.state_dict()["done_below"] == 20


async def test_the_last_batch_is_partial_when_the_data_ends():
    buffer = make_buffer(count=3)
    await trained_step(buffer)
    batch = await trained_step(buffer)

    assert batch.serials == (2,)
    assert await buffer.take() is None


async def test_the_last_batch_waits_for_running_prompts():
    buffer = make_buffer(count=1)
    buffer.loaded("p", 0)
    (lease,) = await buffer.lease("p", 5)
    take = asyncio.create_task(buffer.take())
    assert not await settled(take)

    buffer.complete(lease, Group(0), keep=True)

    assert (await take).serials == (0,)


async def test_a_prompt_that_is_requeued_at_the_end_of_the_data_is_still_leased():
    buffer = make_buffer(count=1)
    for name in ("a", "b"):
        buffer.loaded(name, 0)
    assert serials(await buffer.lease("a", 1)) == [0]
    take = asyncio.create_task(buffer.take())
    waiting = asyncio.create_task(buffer.lease("b", 1))
    assert not await settled(waiting)

    buffer.release("a")
    complete_all(buffer, await waiting, 0)

    assert (await take).serials == (0,)


async def test_when_the_last_prompt_is_dropped_the_data_has_ended():
    buffer = make_buffer(count=2, max_lease_attempts=1)
    buffer.loaded("p", 0)
    await filter_next(buffer, 1)
    take = asyncio.create_task(buffer.take())
    (lease,) = await buffer.lease("p", 1)
    buffer.fail(lease)

    assert await take is None
    assert (buffer.counts.filtered, buffer.counts.dropped) == (1, 1)
    assert buffer.state_dict()["done_below"] == 2


async def test_lease_returns_nothing_only_after_the_last_batch_is_committed():
    buffer = make_buffer(count=2)
    buffer.loaded("p", 0)
    complete_all(buffer, await buffer.lease("p", 2), 0)
    batch = await buffer.take()
    waiting = asyncio.create_task(buffer.lease("p", 1))
    assert not await settled(waiting)

    buffer.commit(batch)

    assert await waiting == ()


async def test_the_run_ends_after_max_steps_with_data_left():
    buffer = make_buffer(max_steps=2)
    for _ in range(2):
        await trained_step(buffer)

    assert await buffer.take() is None
    assert await buffer.lease("p", 1) == ()


async def test_no_prompt_is_started_for_a_step_beyond_the_last():
    buffer = make_buffer(max_steps=2, max_staleness=50)
    buffer.loaded("p", 0)

    assert len(await buffer.lease("p", 100)) == 4


async def test_max_steps_counts_from_the_start_of_the_run_not_of_the_resume():
    buffer = make_buffer(first_step=4, max_steps=5)

    assert (await trained_step(buffer)).step == 4
    assert await buffer.take() is None


async def test_the_episode_is_that_of_the_newest_batch():
    buffer = make_buffer(count=2, episodes=2)
    assert (await trained_step(buffer)).episode == buffer.episode == 0
    assert (await trained_step(buffer)).episode == buffer.episode == 1


async def test_serials_are_offered_over_all_episodes():
    buffer = make_buffer(count=2, episodes=2, max_staleness=5)
    buffer.loaded("p", 0)

    assert serials(await buffer.lease("p", 100)) == [0, 1, 2, 3]
