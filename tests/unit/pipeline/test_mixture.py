"""Mixtures of data sets: fixed shares of each pass, every row equally often, exact on resume."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.pipeline.mixture import Mixture, shares
from grpo_trainer.pipeline.source import PromptOutcome, PromptSource

sizes = st.lists(st.integers(1, 12), min_size=1, max_size=4)
weights = st.floats(0.01, 100)


@st.composite
def mixtures(draw: st.DrawFn) -> Mixture:
    given_sizes = draw(sizes)
    count = len(given_sizes)
    return Mixture.of(given_sizes, draw(st.lists(weights, min_size=count, max_size=count)))


def set_of(mixture: Mixture, row: int) -> int:
    return int(np.searchsorted(np.cumsum(mixture.sizes), row, side="right"))


@given(st.lists(weights, min_size=1, max_size=6), st.integers(0, 200))
def test_shares_add_up_and_each_set_has_one(given_weights, more):
    total = len(given_weights) + more
    counts = shares(total, given_weights)
    assert sum(counts) == total
    assert min(counts) >= 1


@given(st.lists(st.floats(1, 5), min_size=1, max_size=4))
def test_shares_are_proportional_to_the_weights_to_within_one(given_weights):
    counts = shares(100, given_weights)
    exact = [100 * weight / sum(given_weights) for weight in given_weights]
    assert all(abs(count - share) < 1 for count, share in zip(counts, exact, strict=True))


def test_more_sets_than_rows_are_refused():
    with pytest.raises(ValueError, match="total must be at least 3, got 2"):
        shares(2, [1, 1, 1])


@given(mixtures(), st.integers(0, 5), st.integers(0, 3))
def test_each_pass_has_the_rows_of_each_set_that_it_should(mixture, seed, episode):
    rows = mixture.order(seed, episode)
    counts = Counter(set_of(mixture, int(row)) for row in rows)
    assert [counts[i] for i in range(len(mixture.sizes))] == list(mixture.counts)
    assert mixture.count == sum(mixture.sizes)


@given(mixtures(), st.integers(0, 5), st.integers(1, 6))
def test_no_row_is_used_again_before_all_of_its_set_were_used(mixture, seed, episodes):
    used = Counter(int(row) for e in range(episodes) for row in mixture.order(seed, e))
    offset = 0
    for size in mixture.sizes:
        times = [used[row] for row in range(offset, offset + size)]
        assert max(times) - min(times) <= 1
        offset += size


def test_the_order_differs_between_passes_and_seeds_and_mixes_the_sets():
    mixture = Mixture.of([40, 40], [1, 1])
    first = mixture.order(0, 0)
    assert not np.array_equal(first, mixture.order(0, 1))
    assert not np.array_equal(first, mixture.order(1, 0))
    assert 5 < sum(row < 40 for row in first[:40]) < 35


@given(mixtures(), st.integers(1, 3), st.data())
def test_a_resumed_source_offers_what_was_not_finished_and_each_prompt_once(
    mixture, episodes, data
):
    source = PromptSource(mixture.count, episodes, 7, mixture)
    whole = [source.take() for _ in range(mixture.count * episodes)]
    assert source.take() is None
    stop = data.draw(st.integers(0, len(whole)))
    finished = set(
        data.draw(st.lists(st.integers(0, max(0, stop - 1)), unique=True)) if stop else []
    )
    first = PromptSource(mixture.count, episodes, 7, mixture)
    for serial in range(stop):
        prompt = first.take()
        assert prompt == whole[serial]
        if serial in finished:
            first.finish(serial, PromptOutcome.TRAINED)
    second = PromptSource(mixture.count, episodes, 7, mixture)
    second.load_state_dict(first.state_dict())
    rest = []
    while (prompt := second.take()) is not None:
        rest.append(prompt)
    assert rest == [prompt for prompt in whole if prompt.serial not in finished]


def test_a_position_in_another_mixture_is_refused():
    one, other = Mixture.of([2, 2], [1, 1]), Mixture.of([2, 2], [1, 3])
    state = PromptSource(4, 1, 0, one).state_dict()
    with pytest.raises(InvalidInputError, match="mixture: the checkpoint"):
        PromptSource(4, 1, 0, other).load_state_dict(state)
    with pytest.raises(InvalidInputError, match="mixture: the checkpoint"):
        PromptSource(4, 1, 0).load_state_dict(state)


def test_a_position_of_an_earlier_release_is_one_without_a_mixture():
    source = PromptSource(4, 1, 0)
    state = {key: value for key, value in source.state_dict().items() if key != "mixture"}
    source.load_state_dict(state)
