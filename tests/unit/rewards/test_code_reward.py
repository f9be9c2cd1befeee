"""The code reward: which completions are right, and how outputs and results are compared."""

import pytest

from grpo_trainer.messages import Message, Row, TestCases
from grpo_trainer.rewards import RIGHT_REWARD, WRONG_REWARD, make_reward
from grpo_trainer.rewards.outputs import same_output, same_result
from grpo_trainer.spec.reward import RewardSpec, RewardType

DOUBLE = TestCases(inputs=("1\n", "2\n", "21\n"), outputs=("2\n", "4\n", "42\n"))


def score(completion: str, tests: TestCases = DOUBLE, timeout_seconds: float = 60):
    reward = make_reward(RewardSpec(type=RewardType.CODE, timeout_seconds=timeout_seconds))
    return reward(completion, Row("data.jsonl row 1", (Message("user", "?"),), tests=tests))


def fenced(program: str) -> str:
    return f"Here it is:\n```python\n{program}\n```\nDone."


def test_a_program_that_passes_all_tests_is_right():
    assert score(fenced("print(2 * int(input()))")).reward == RIGHT_REWARD


def test_a_program_that_fails_one_test_is_wrong():
    result = score(fenced("n = int(input())\nprint(n + n if n < 20 else n)"))
    assert (result.reward, result.accuracy, result.format_accuracy) == (WRONG_REWARD, 0.0, 1.0)


def test_a_right_program_outside_a_fence_is_malformed():
    result = score("print(2 * int(input()))")
    assert (result.reward, result.accuracy, result.format_accuracy) == (WRONG_REWARD, 0.0, 0.0)


def test_only_the_last_block_runs():
    wrong_first = fenced("print(0)") + "\n" + fenced("print(2 * int(input()))")
    assert score(wrong_first).reward == RIGHT_REWARD


def test_a_program_that_never_ends_is_wrong_rather_than_unscored():
    result = score(fenced("while True: pass"), timeout_seconds=3)
    assert (result.reward, result.error) == (WRONG_REWARD, None)


def test_a_function_is_called_with_the_tests_arguments():
    tests = TestCases(("[1, 2]\n3", "[]\n0"), ("[1, 2, 3]", "[0]"), function="append")
    right = "class Solution:\n    def append(self, xs, x):\n        return (*xs, x)"
    assert score(fenced(right), tests).reward == RIGHT_REWARD
    assert score(fenced("def append(xs, x):\n    return xs"), tests).reward == WRONG_REWARD
    assert score(fenced("def other(xs, x):\n    return xs"), tests).reward == WRONG_REWARD


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("1\n2\n", "1\n2"),
        ("1\n2", "  1  \n 2 \n\n"),
        ("0.333333", "0.33333333"),
        ("a 0.5 b", "a 0.50 b"),
        ("3", "3.0"),
        ("0.0", "1e-12"),
        ("1e-17", "0"),
        ("", "\n"),
    ],
)
def test_outputs_are_equal_but_for_white_space_and_rounding(expected, actual):
    assert same_output(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("1\n2", "1 2"),
        ("1", ""),
        ("1", "1\n1"),
        ("1000000000", "1000000001"),
        ("007", "7"),
        ("0.5", "0.6"),
        ("1e-9", "5e-9"),
        ("0.000000001", "0.000000002"),
        ("nan", "0"),
        ("inf", "1e999"),
        ("Yes", "yes"),
    ],
)
def test_outputs_that_differ_are_not_equal(expected, actual):
    assert not same_output(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [("[1, 2]", "[1,2]"), ("0.1", "0.10000000001"), ('{"a": [0.5]}', '{"a": [0.5]}'), ("2", "2.0")],
)
def test_results_are_equal_as_json(expected, actual):
    assert same_result(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("[1, 2]", "[2, 1]"),
        ("[1]", "[1, 1]"),
        ('{"a": 1}', '{"b": 1}'),
        ("10000000000000001", "10000000000000002"),
        ("1e-9", "5e-9"),
        ('"1"', "1"),
        ("null", "0"),
        ("1" + "0" * 400, "1.5"),
        ("1", ""),
        ("[]", "[" * 100_000),
    ],
)
def test_results_that_differ_are_not_equal(expected, actual):
    assert not same_result(expected, actual)
