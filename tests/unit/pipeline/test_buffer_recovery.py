"""How a run of the buffer ends early or resumes from a checkpoint: reset, resume, close, abort."""

import asyncio

import pytest

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.pipeline import Limits, RolloutBuffer
from unit.pipeline.buffers import (
    Buffer,
    Group,
    complete_all,
    make_buffer,
    serials,
    source_at,
    trained_step,
)
from unit.pipeline.virtual_time import settled


async def rolled_back() -> Buffer:
    """A buffer that has trained three steps, and went back to the state after the first."""
    buffer = make_buffer(max_staleness=3)
    await trained_step(buffer)
    checkpoint = buffer.state_dict()
    await trained_step(buffer)
    await trained_step(buffer)
    buffer.reset(checkpoint, step=1)
    return buffer


async def test_a_reset_goes_back_to_the_data_and_the_step_of_the_checkpoint():
    buffer = await rolled_back()

    batch = await trained_step(buffer)

    assert (batch.step, batch.serials) == (1, (2, 3))


async def test_a_reset_restores_the_counts():
    assert (await rolled_back()).counts.trained == 2


async def test_after_a_reset_producers_start_only_with_the_weights_that_were_restored():
    buffer = await rolled_back()
    waiting = asyncio.create_task(buffer.lease("p", 1))
    assert not await settled(waiting)

    buffer.loaded("p", 3)
    assert not await settled(waiting)
    buffer.loaded("p", 1)

    assert serials(await waiting) == [2]


async def test_weights_from_before_a_reset_do_not_count_even_with_the_same_number():
    buffer = make_buffer()
    buffer.loaded("p", 0)

    buffer.reset(buffer.state_dict(), step=0)

    assert not await settled(asyncio.create_task(buffer.lease("p", 1)))


async def test_a_reset_goes_back_to_the_episode_of_the_checkpoint():
    buffer = make_buffer(count=2, episodes=2)
    state = buffer.state_dict()
    await trained_step(buffer)
    await trained_step(buffer)

    buffer.reset(state, step=0)

    assert buffer.episode == 0


async def test_a_lease_from_before_a_reset_is_ignored():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    old, other = await buffer.lease("p", 2)
    buffer.reset(buffer.state_dict(), step=0)
    buffer.loaded("p", 0)
    (new, _) = await buffer.lease("p", 2)

    assert new.prompt.serial == old.prompt.serial
    assert not buffer.complete(old, Group(0), keep=True)
    buffer.fail(other)
    assert (buffer.running, buffer.depth, buffer.counts.requeued) == (2, 0, 0)


async def test_the_deadline_of_a_lease_from_before_a_reset_does_nothing(
    caplog: pytest.LogCaptureFixture,
):
    buffer = make_buffer(lease_seconds=30)
    buffer.loaded("p", 0)
    await buffer.lease("p", 1)
    buffer.reset(buffer.state_dict(), step=0)

    await asyncio.sleep(60)

    assert buffer.counts.requeued == 0
    assert not caplog.text


async def test_a_batch_from_before_a_reset_cannot_be_committed():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    complete_all(buffer, await buffer.lease("p", 2), 0)
    batch = await buffer.take()
    buffer.reset(buffer.state_dict(), step=0)

    with pytest.raises(AssertionError, match="from before a reset"):
        buffer.commit(batch)


async def test_buffered_and_filtered_groups_are_replayed_after_a_reset():
    buffer = make_buffer(max_staleness=3)
    buffer.loaded("p", 0)
    kept, filtered = await buffer.lease("p", 2)
    buffer.complete(kept, Group(0), keep=True)
    buffer.complete(filtered, Group(0), keep=False)

    buffer.reset(buffer.state_dict(), step=0)

    buffer.loaded("p", 0)
    assert (buffer.depth, buffer.counts.filtered) == (0, 0)
    assert serials(await buffer.lease("p", 2)) == [0, 1]


async def test_a_take_that_is_pending_at_a_reset_gets_the_step_of_the_checkpoint():
    buffer = make_buffer()
    state = buffer.state_dict()
    await trained_step(buffer)
    take = asyncio.create_task(buffer.take())
    await settled(take)

    buffer.reset(state, step=0)
    buffer.loaded("p", 0)
    complete_all(buffer, await buffer.lease("p", 2), 0)

    assert (await take).step == 0


async def test_a_finished_run_continues_after_a_reset():
    buffer = make_buffer(count=2)
    state = buffer.state_dict()
    await trained_step(buffer)
    assert await buffer.take() is None

    buffer.reset(state, step=0)

    assert (await trained_step(buffer)).serials == (0, 1)


async def test_a_reset_to_the_state_of_other_data_is_refused():
    buffer = make_buffer(count=100)

    with pytest.raises(InvalidInputError, match=r"^count: .* expected 100"):
        buffer.reset(make_buffer(count=99).state_dict(), step=0)


async def test_a_new_buffer_continues_at_the_position_of_the_state():
    buffer = make_buffer(count=10)
    await trained_step(buffer)
    buffer.loaded("p", 1)
    await buffer.lease("p", 2)

    source = source_at(buffer.state_dict(), count=10, episodes=1, seed=0)
    resumed: Buffer = RolloutBuffer(
        source,
        Limits(groups_per_step=2, capacity=100, max_staleness=1, max_steps=None),
        max_attempts=3,
        lease_seconds=60.0,
        first_step=1,
    )

    batch = await trained_step(resumed)
    assert (batch.step, batch.serials) == (1, (2, 3))
    assert resumed.counts.trained == 4


async def test_closing_ends_all_waiting_calls_without_result():
    buffer = make_buffer()
    take = asyncio.create_task(buffer.take())
    leases = [asyncio.create_task(buffer.lease(name, 1)) for name in ("a", "b")]
    await settled(take)

    buffer.close()

    assert await take is None
    assert await asyncio.gather(*leases) == [(), ()]


async def test_a_closed_buffer_returns_nothing_and_accepts_nothing():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    (lease,) = await buffer.lease("p", 1)

    buffer.close()

    assert not buffer.complete(lease, Group(0), keep=True)
    assert await buffer.take() is None
    assert await buffer.lease("p", 1) == ()


async def test_a_batch_that_is_being_trained_may_be_committed_after_closing():
    buffer = make_buffer()
    buffer.loaded("p", 0)
    complete_all(buffer, await buffer.lease("p", 3), 0)
    batch = await buffer.take()

    buffer.close()
    buffer.commit(batch)

    assert buffer.state_dict()["done_below"] == 2
    assert buffer.counts.trained == 2


async def test_an_abort_raises_its_error_in_all_waiting_and_later_calls():
    buffer = make_buffer()
    waiting = [asyncio.create_task(buffer.take()), asyncio.create_task(buffer.lease("p", 1))]
    await settled(waiting[0])

    buffer.abort(RuntimeError("no producer is left"))

    for task in waiting:
        with pytest.raises(RuntimeError, match="no producer is left"):
            await task
    with pytest.raises(RuntimeError, match="no producer is left"):
        await buffer.take()
