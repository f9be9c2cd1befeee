"""Which waiting requests are generated for together: size, likeness, order, abandoned requests."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.rollout.queueing import PendingRequest, split_microbatch
from grpo_trainer.rollout.stopwatch import Stopwatch
from unit.rollout.tiny_models import request

ITEMS = st.tuples(st.sampled_from([0.0, 0.6, 1.0]), st.integers(1, 4), st.booleans())
QUEUES = st.lists(ITEMS, max_size=20)
PROMPTS, COMPLETIONS = st.integers(1, 6), st.integers(0, 12)


def queue_of(items):
    """Pending requests of (temperature, samples, whether the caller has gone)."""
    loop = asyncio.new_event_loop()
    queue = [
        PendingRequest(request(temperature=temperature, samples=samples), loop.create_future())
        for temperature, samples, _ in items
    ]
    for pending, (_, _, gone) in zip(queue, items, strict=True):
        if gone:
            pending.answer.cancel()
    loop.close()
    return queue


def samples(requests):
    return sum(pending.request.num_samples for pending in requests)


@given(QUEUES, PROMPTS, COMPLETIONS)
def test_a_microbatch_and_the_rest_are_all_that_is_waited_for(items, prompts, completions):
    queue = queue_of(items)
    batch, rest = split_microbatch(queue, prompts, completions)
    waiting = [pending for pending in queue if not pending.answer.done()]
    assert sorted(map(id, batch + rest)) == sorted(map(id, waiting))


@given(QUEUES, PROMPTS, COMPLETIONS)
def test_a_microbatch_holds_the_oldest_request_and_only_its_like(items, prompts, completions):
    queue = queue_of(items)
    batch, rest = split_microbatch(queue, prompts, completions)
    waiting = [pending for pending in queue if not pending.answer.done()]
    assert batch[:1] == waiting[:1]
    assert len({pending.request.sampling for pending in batch}) <= 1
    like = [p for p in rest if p.request.sampling == batch[0].request.sampling]
    assert not like or len(batch) >= prompts


@given(QUEUES, PROMPTS, COMPLETIONS)
def test_prompts_beyond_the_limit_are_taken_only_within_the_completions(
    items, prompts, completions
):
    batch, _ = split_microbatch(queue_of(items), prompts, completions)
    assert len(batch) <= prompts or samples(batch) <= completions


@given(QUEUES, PROMPTS, COMPLETIONS)
def test_batch_and_rest_keep_the_order_of_arrival(items, prompts, completions):
    queue = queue_of(items)
    for part in split_microbatch(queue, prompts, completions):
        positions = [queue.index(pending) for pending in part]
        assert positions == sorted(positions)


def test_an_evaluation_fills_a_microbatch_as_rollouts_do():
    rollouts = queue_of([(1.0, 8, False)] * 20)
    evaluation = queue_of([(0.6, 1, False)] * 100)
    assert [samples(split_microbatch(q, 8, 64)[0]) for q in (rollouts, evaluation)] == [64, 64]


def test_a_stopwatch_counts_the_block_under_way():
    now = iter([10.0, 11.0, 13.0, 20.0, 24.0, 25.0])
    watch = Stopwatch(clock=lambda: next(now))
    with watch:
        assert watch.seconds == 1.0
    assert watch.seconds == 3.0
    with watch:
        assert watch.seconds == 7.0
    assert watch.seconds == 8.0
