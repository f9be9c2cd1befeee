"""A custom reward is called on rows of the data set before a run starts.

Aspects: the user's traceback, wrong results, None, exits, hangs, rows that differ, what is only
logged, exit without stray messages.
"""

import logging
from pathlib import Path

import pytest

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.messages import Message, Row
from grpo_trainer.rewards import check_rows
from grpo_trainer.rewards.trial import completions
from grpo_trainer.spec.reward import CustomRewardSpec, RewardSpec, RewardType


def rows(count: int = 9) -> list[Row]:
    return [
        Row(f"train.jsonl line {i}", (Message("user", "?"),), str(i), columns={"level": i})
        for i in range(1, count + 1)
    ]


def check(tmp_path: Path, source: str, timeout_seconds: float = 60) -> None:
    path = tmp_path / "mine.py"
    path.write_text(source)
    custom = CustomRewardSpec(module=str(path))
    spec = RewardSpec(type=RewardType.CUSTOM, custom=custom, timeout_seconds=timeout_seconds)
    check_rows(rows(), spec)


def fault_of(tmp_path: Path, source: str, timeout_seconds: float = 60) -> str:
    with pytest.raises(InvalidInputError) as caught:
        check(tmp_path, source, timeout_seconds)
    (fault,) = caught.value.faults
    assert fault.startswith("spec.reward.custom.function: Invalid value: 'reward': ")
    return fault


def test_a_function_that_scores_is_accepted_without_a_word(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        check(tmp_path, "def reward(completion, row): return float(row['answer'] in completion)")
    assert not caplog.records


def test_an_exception_is_reported_with_the_users_traceback(tmp_path):
    source = (
        "def reward(completion, row):\n    return helper(row)\n\n"
        "def helper(row):\n    return row['gold']\n"
    )
    fault = fault_of(tmp_path, source)
    assert "fails on train.jsonl line 1: KeyError: 'gold' (mine.py, line 2)" in fault
    lines = fault.splitlines()
    assert lines[1] == f'  File "{tmp_path}/mine.py", line 2, in reward'
    assert f'  File "{tmp_path}/mine.py", line 5, in helper' in lines
    assert lines[-1] == "KeyError: 'gold'"
    assert "grpo_trainer" not in fault


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero (mine.py, line 1)"),
        ("'high'", "reward must be a number, got 'high' of type str"),
        ("(1.0, 2.0)", "reward must be a number, got (1.0, 2.0) of type tuple"),
        ("[1.0 for _ in completion]", "of type list"),
        ("float('nan')", "reward must be finite, got nan"),
        ("{'score': 1.0}", "the returned dict must have 'reward'"),
        ("__import__('sys').exit('no')", "SystemExit: no (mine.py, line 1)"),
        ("__import__('os')._exit(3)", "ends its process on train.jsonl line 1"),
    ],
)
def test_a_function_that_never_returns_a_reward_is_refused(tmp_path, result, message):
    assert message in fault_of(tmp_path, f"def reward(completion, row): return {result}")


def test_a_function_that_hangs_is_refused_after_one_deadline(tmp_path):
    source = "import time\ndef reward(completion, row): time.sleep(1000)"
    fault = fault_of(tmp_path, source, timeout_seconds=1)
    assert "within 1 s (spec.reward.timeoutSeconds), hangs on train.jsonl line 1" in fault


def test_a_function_that_only_returns_none_is_refused(tmp_path):
    fault = fault_of(tmp_path, "def reward(completion, row): pass")
    assert "returned None for 16 of 16 test completions and scored none" in fault
    assert "0.0 for a wrong answer" in fault


def test_a_forgotten_reward_for_wrong_answers_is_logged(tmp_path, caplog):
    check(tmp_path, "def reward(completion, row):\n    if row['answer'] in completion: return 1.0")
    (record,) = caplog.records
    assert "returned None for 4 of 16 test completions: they are unscored" in record.message


def test_a_function_that_fails_on_every_completion_of_a_later_row_is_refused(tmp_path):
    source = "def reward(completion, row): return 1 / (row['level'] - 9)"
    assert "fails on train.jsonl line 9: ZeroDivisionError" in fault_of(tmp_path, source)


def test_a_function_that_fails_on_some_forms_only_is_accepted_and_logged(tmp_path, caplog):
    check(tmp_path, "def reward(completion, row): return float(completion)")
    (record,) = caplog.records
    assert "failed on 12 of 16 test completions, first: ValueError" in record.message
    assert 'mine.py", line 1, in reward' in record.message


def test_an_empty_data_set_only_loads_the_function(tmp_path):
    (tmp_path / "mine.py").write_text("def reward(completion, row): return 1 / 0")
    custom = CustomRewardSpec(module=str(tmp_path / "mine.py"))
    check_rows([], RewardSpec(type=RewardType.CUSTOM, custom=custom))


def test_the_test_completions_hold_the_answer_in_every_usual_form():
    texts = completions(rows()[0])
    assert [text for text in texts if "1" in text] == texts[:3]
