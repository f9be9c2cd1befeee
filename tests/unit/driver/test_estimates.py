"""Estimates from several samples of each row: avg@n, its standard error, pass@k."""

from itertools import combinations
from math import sqrt
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.estimates import estimate, pass_at


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_is_the_share_of_all_choices_of_k_samples_with_a_right_one(samples, data):
    k = data.draw(st.integers(1, len(samples)))
    choices = list(combinations(samples, k))
    assert pass_at(len(samples), sum(samples), k) == pytest.approx(fmean(map(any, choices)))


def test_accuracy_is_the_mean_over_rows_and_its_error_that_of_the_row_means():
    found = estimate([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    assert found.accuracy == pytest.approx(0.5)
    assert found.standard_error == pytest.approx(stdev([0.5, 1.0, 0.0]) / sqrt(3))
    assert found.pass_at == {2: pytest.approx(2 / 3)}


def test_more_samples_of_equal_rows_do_not_shrink_the_error():
    one, many = estimate([[1.0], [0.0]]), estimate([[1.0] * 16, [0.0] * 16])
    assert one.standard_error == many.standard_error


def test_pass_at_is_given_for_powers_of_two_and_all_samples():
    assert list(estimate([[1.0] * 6]).pass_at) == [2, 4, 6]
    assert estimate([[1.0]]).pass_at == {}


def test_a_completion_that_is_only_partly_right_does_not_pass():
    found = estimate([[0.5, 0.5]])
    assert (found.accuracy, found.pass_at) == (0.5, {2: 0.0})


def test_rows_without_a_score_do_not_count():
    assert estimate([[1.0], []]) == estimate([[1.0]])
    assert estimate([[], []]) == estimate([])
    assert estimate([]).accuracy == 0.0
    assert estimate([[1.0, 0.0], [1.0]]).pass_at == {2: 1.0}
