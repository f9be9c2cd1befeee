"""What is built in, as far as it needs no model.

Aspects: the sums and their split, the careless teacher, names and paths, where models are cached,
names of recipes, that nothing here loads torch.
"""

import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_trainer.builtin import (
    CompletionFormat,
    Recipe,
    Split,
    addition_rows,
    default_cache,
    is_builtin,
    resolve_model_path,
)
from grpo_trainer.builtin.addition import sums
from grpo_trainer.builtin.teacher import careless_answer, completion
from grpo_trainer.errors import InvalidInputError
from grpo_trainer.spec import RewardType

operands = st.integers(10, 49)


def test_the_splits_share_no_sum_in_either_order():
    train, held_out = ({frozenset(pair) for pair in sums(split)} for split in Split)
    assert not train & held_out
    assert len(train | held_out) == 820


def test_each_split_holds_both_orders_of_every_sum_once():
    for split, count in ((Split.TRAIN, 1307), (Split.HELD_OUT, 293)):
        pairs = sums(split)
        assert len(pairs) == len(set(pairs)) == count
        assert {(b, a) for a, b in pairs} == set(pairs)


def test_the_sums_are_the_same_at_every_call_and_not_sorted():
    assert sums(Split.TRAIN) == sums(Split.TRAIN)
    assert sums(Split.TRAIN) != sorted(sums(Split.TRAIN))


def test_rows_hold_the_right_answers():
    for split in Split:
        for (a, b), row in zip(sums(split), addition_rows(split), strict=True):
            assert row["messages"][0]["content"] == f"{a}+{b}="
            assert row["gt_answer"] == str(a + b)


@settings(deadline=None)
@given(a=operands, b=operands, seed=st.integers(0, 9))
def test_a_teacher_that_is_never_careless_is_right(a, b, seed):
    assert careless_answer(a, b, random.Random(seed), forget_carry=0, slip=0) == a + b


@settings(deadline=None)
@given(a=operands, b=operands, seed=st.integers(0, 9))
def test_a_forgotten_carry_lowers_the_sum_by_ten(a, b, seed):
    carries = a % 10 + b % 10 >= 10
    answer = careless_answer(a, b, random.Random(seed), forget_carry=1, slip=0)
    assert answer == a + b - 10 * carries


def test_the_teacher_is_as_careless_as_requested():
    rng = random.Random(0)
    answers = Counter(
        careless_answer(17, 25, rng, forget_carry=0.75, slip=0.3) for _ in range(4000)
    )
    assert set(answers) == {41, 42, 43, 31, 32, 33}
    assert answers[42] / 4000 == pytest.approx(0.25 * 0.7, abs=0.02)
    assert answers[32] / 4000 == pytest.approx(0.75 * 0.7, abs=0.03)


def test_completions_have_the_form_that_rewards_read():
    assert completion(17, 25, 32, CompletionFormat.BOXED) == "\\boxed{32}"
    thought = completion(17, 25, 32, CompletionFormat.THINK_ANSWER_TAGS)
    assert thought == "<think>7+5=12</think><answer>32</answer>"


def test_built_in_paths_are_recognised_by_their_scheme():
    assert is_builtin("builtin://tiny")
    assert not is_builtin("Qwen/Qwen2.5-7B")
    assert not is_builtin("/models/builtin")


@pytest.mark.parametrize("path", ["Qwen/Qwen2.5-7B", "/models/mine", "models/mine"])
def test_another_model_keeps_its_path_and_writes_nothing(tmp_path, path):
    assert resolve_model_path(path, RewardType.BOXED, tmp_path) == path
    assert not list(tmp_path.iterdir())


def test_an_unknown_built_in_model_is_refused_with_the_known_one(tmp_path):
    with pytest.raises(
        InvalidInputError, match=r'Invalid value: "builtin://huge": must be builtin://tiny'
    ):
        resolve_model_path("builtin://huge", RewardType.BOXED, tmp_path)


def test_the_cache_follows_the_environment(monkeypatch):
    monkeypatch.setenv("HOME", "/home/u")
    monkeypatch.delenv("GRPO_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_cache() == Path("/home/u/.cache/grpo-operator/models")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert default_cache() == Path("/cache/grpo-operator/models")
    monkeypatch.setenv("GRPO_CACHE", "/volume/cache")
    assert default_cache() == Path("/volume/cache/models")


def test_every_change_of_a_recipe_changes_its_name():
    recipe = Recipe()
    changes = [
        replace(recipe, seed=1),
        replace(recipe, steps=499),
        replace(recipe, slip=0.31),
        replace(recipe, completion_format=CompletionFormat.THINK_ANSWER_TAGS),
        replace(recipe, revision=2),
    ]
    assert Recipe().name == recipe.name
    assert len({recipe.name, *(changed.name for changed in changes)}) == 6


def test_data_and_built_ins_load_without_torch():
    code = (
        "import sys, grpo_trainer.builtin, grpo_trainer.data\n"
        "print({'torch', 'transformers', 'ray', 'pyarrow'} & sys.modules.keys())"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60).stdout == "set()\n"
