"""Custom rewards: loading a user's function, what it is given, and what it may return."""

from pathlib import Path

import pytest

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.messages import Message, Row, Score
from grpo_trainer.rewards import make_reward
from grpo_trainer.spec.reward import CustomRewardSpec, RewardSpec, RewardType

ROW = Row("data.jsonl row 1", (Message("user", "?"),), answer="4", columns={"level": 3})


def reward_of(module: str, function: str = "reward"):
    custom = CustomRewardSpec(module=module, function=function)
    return make_reward(RewardSpec(type=RewardType.CUSTOM, custom=custom))


def score_with(tmp_path: Path, body: str) -> Score:
    path = tmp_path / "mine.py"
    path.write_text(f"def reward(completion, row):\n    {body}\n")
    return reward_of(str(path))("text", ROW)


def test_a_number_is_the_reward_and_within_bounds_the_accuracy(tmp_path):
    assert score_with(tmp_path, "return 0.25") == Score(0.25, 1.0, 0.25)
    assert score_with(tmp_path, "return 7") == Score(7.0, 1.0, 1.0)
    assert score_with(tmp_path, "return -1.0") == Score(-1.0, 1.0, 0.0)


def test_a_dict_may_give_accuracy_and_format(tmp_path):
    body = "return {'reward': 2, 'accuracy': 1, 'format_accuracy': False}"
    assert score_with(tmp_path, body) == Score(2.0, 0.0, 1.0)


def test_the_function_sees_the_completion_the_columns_and_the_reference(tmp_path):
    body = "return float((completion, row) == ('text', {'level': 3, 'answer': '4'}))"
    assert score_with(tmp_path, body).reward == 1.0


@pytest.mark.parametrize(
    "result",
    [
        *("'high'", "'1.0'", "b'1'", "(1, 2)", "[1.0]", "object()"),
        *("float('nan')", "float('inf')", "{}", "{'accuracy': 1}", "{'reward': 'high'}"),
    ],
)
def test_anything_but_a_finite_reward_is_an_error(tmp_path, result):
    with pytest.raises((TypeError, ValueError)):
        score_with(tmp_path, f"return {result}")


@pytest.mark.parametrize("result", ["None", "{'reward': None}"])
def test_a_reward_of_none_leaves_the_completion_unscored(tmp_path, result):
    assert score_with(tmp_path, f"return {result}") == Score(None, 0.0, 0.0, "none")


@pytest.mark.parametrize("number", ["numpy.float32(0.5)", "fractions.Fraction(1, 2)", "0.5"])
def test_any_number_is_a_reward(tmp_path, number):
    assert score_with(tmp_path, f"import fractions, numpy; return {number}").reward == 0.5


def test_an_unknown_key_is_an_error_that_names_the_supported_ones(tmp_path):
    with pytest.raises(TypeError, match="format_accuracy"):
        score_with(tmp_path, "return {'reward': 1, 'acuracy': 1}")


def test_a_module_on_the_path_is_imported_by_name(tmp_path, monkeypatch):
    (tmp_path / "rewards_of_mine.py").write_text(
        "def length(completion, row):\n    return len(row)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert reward_of("rewards_of_mine", "length")("text", ROW).reward == 2.0


def test_a_dataclass_in_a_file_works(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass R:\n    value: float\n"
        "def reward(completion, row):\n    return R(1.5).value\n"
    )
    assert reward_of(str(path))("text", ROW).reward == 1.5


def test_a_missing_module_is_named():
    with pytest.raises(
        InvalidInputError, match=r"reward\.custom\.module: Invalid value: 'no_such_module'"
    ):
        reward_of("no_such_module")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"no such file: .*/mine\.py"):
        reward_of(str(tmp_path / "mine.py"))


def test_a_module_that_fails_on_import_is_named_with_its_error(tmp_path):
    (tmp_path / "mine.py").write_text("raise KeyError('boom')")
    with pytest.raises(InvalidInputError, match="KeyError: 'boom'"):
        reward_of(str(tmp_path / "mine.py"))


def test_a_missing_function_is_named(tmp_path):
    (tmp_path / "mine.py").write_text("")
    with pytest.raises(
        InvalidInputError, match=r"reward\.custom\.function: Invalid value: 'reward': is not in"
    ):
        reward_of(str(tmp_path / "mine.py"))


def test_a_module_that_exits_on_import_is_named_with_its_line(tmp_path):
    (tmp_path / "mine.py").write_text("import sys\nsys.exit(3)")
    with pytest.raises(InvalidInputError, match=r"mine\.py': .* SystemExit: 3 \(line 2\)"):
        reward_of(str(tmp_path / "mine.py"))


@pytest.mark.parametrize(
    "signature", ["(completions, **kwargs)", "()", "(completion)", "(completion, row, scale)"]
)
def test_a_wrong_signature_is_refused_with_the_right_one(tmp_path, signature):
    (tmp_path / "mine.py").write_text(f"def reward{signature}: return 0.0")
    with pytest.raises(InvalidInputError) as caught:
        reward_of(str(tmp_path / "mine.py"))
    (fault,) = caught.value.faults
    assert "must be reward(completion: str, row: dict) -> float | dict" in fault
    assert f"is reward{signature}" in fault


@pytest.mark.parametrize(
    "definition", ["async def reward(completion, row): yield 1.0", "def reward(c, row): yield 1.0"]
)
def test_a_generator_is_refused(tmp_path, definition):
    (tmp_path / "mine.py").write_text(definition)
    with pytest.raises(InvalidInputError, match="not a generator"):
        reward_of(str(tmp_path / "mine.py"))


def test_an_asynchronous_function_may_return_the_reward(tmp_path):
    (tmp_path / "mine.py").write_text("async def reward(completion, row): return 0.5")
    assert reward_of(str(tmp_path / "mine.py"))("text", ROW) == Score(0.5, 1.0, 0.5)


def test_an_attribute_that_is_not_callable_is_refused(tmp_path):
    (tmp_path / "mine.py").write_text("reward = 3")
    with pytest.raises(InvalidInputError, match="must be callable, is 'int'"):
        reward_of(str(tmp_path / "mine.py"))
