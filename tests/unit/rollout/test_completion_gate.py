"""The gate between completions and weights: who waits for whom, and what counts as busy."""

import asyncio

from grpo_trainer.rollout.completion_gate import CompletionGate


def gate(*, in_flight_updates: bool = False, has_weights: bool = True) -> CompletionGate:
    made = CompletionGate(in_flight_updates=in_flight_updates, max_completions=4)
    made.has_weights = has_weights
    return made


class Block:
    """A block of the gate in a task of its own."""

    def __init__(self, context: object) -> None:
        self._end = asyncio.Event()
        self.entered = False
        self.task = asyncio.create_task(self._run(context))

    async def _run(self, context: object) -> None:
        async with context:  # type: ignore[attr-defined]
            self.entered = True
            await self._end.wait()

    async def end(self) -> None:
        self._end.set()
        await self.task


async def settle() -> None:
    """Run everything that can continue."""
    for _ in range(10):
        await asyncio.sleep(0)


async def blocks(*contexts: object) -> list[Block]:
    made = [Block(context) for context in contexts]
    await settle()
    return made


async def test_completions_wait_for_the_first_weights() -> None:
    closed = gate(has_weights=False)
    (completion,) = await blocks(closed.running(1))
    assert not completion.entered
    async with closed.drained():
        closed.has_weights = True
    await settle()
    assert completion.entered
    await completion.end()


async def test_weights_wait_for_completions_and_new_completions_for_the_weights() -> None:
    shared = gate()
    first, weights, second = await blocks(shared.running(1), shared.drained(), shared.running(1))
    assert (first.entered, weights.entered, second.entered) == (True, False, False)
    await first.end()
    await settle()
    assert (weights.entered, second.entered) == (True, False)
    await weights.end()
    await settle()
    assert second.entered
    await second.end()


async def test_weights_in_flight_do_not_wait() -> None:
    shared = gate(in_flight_updates=True)
    first, weights, second = await blocks(shared.running(9), shared.drained(), shared.running(9))
    assert first.entered and weights.entered and second.entered
    for block in (first, weights, second):
        await block.end()


async def test_completions_beyond_the_engine_s_batch_are_not_queued_in_front_of_weights() -> None:
    shared = gate()
    first, second = await blocks(shared.running(3), shared.running(2))
    assert first.entered and not second.entered
    await first.end()
    await settle()
    assert second.entered
    await second.end()


async def test_a_request_larger_than_the_engine_s_batch_runs_alone() -> None:
    (large,) = await blocks(gate().running(9))
    assert large.entered
    await large.end()


async def test_only_completions_that_make_progress_count_as_busy() -> None:
    shared = gate(in_flight_updates=True)
    assert shared.busy_seconds == 0
    async with shared.running(1):
        with shared.paused():
            before = shared.busy_seconds
            await settle()
            assert shared.busy_seconds == before
        await settle()
        assert shared.busy_seconds > before
    after = shared.busy_seconds
    await settle()
    assert shared.busy_seconds == after
