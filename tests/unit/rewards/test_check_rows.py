"""Rows are refused at load if no completion can be right, and rewards if they cannot be
loaded."""

import pytest

from grpo_trainer.errors import InvalidDataError, InvalidInputError
from grpo_trainer.messages import Message, Row, TestCases
from grpo_trainer.rewards import check_rows
from grpo_trainer.spec.reward import CustomRewardSpec, RewardSpec, RewardType

BOXED = RewardSpec(type=RewardType.BOXED)
CODE = RewardSpec(type=RewardType.CODE)


def rows(*answers: str | None) -> list[Row]:
    messages = (Message("user", "?"),)
    return [Row(f"data.jsonl row {i}", messages, answer) for i, answer in enumerate(answers, 1)]


def code_row(tests: TestCases | None) -> Row:
    return Row("data.jsonl row 1", (Message("user", "?"),), tests=tests)


def test_letters_words_numbers_and_mathematics_are_accepted():
    check_rows(rows("B", "Evelyn", "12", r"50\%", r"\frac{x}{2}", "1331 and 1728"), BOXED)


def test_ten_thousand_plain_answers_need_no_worker(monkeypatch):
    monkeypatch.setattr("grpo_trainer.rewards.references.WorkerPool", None)
    check_rows(rows(*map(str, range(10_000))), BOXED)


def test_every_row_with_an_unusable_reference_is_named():
    with pytest.raises(InvalidDataError) as caught:
        check_rows(rows("1", r"\frac{x", "", "{1}{2}", None, "x" * 2000, "2"), BOXED)
    named = {fault.split(":")[0] for fault in caught.value.faults}
    assert named == {f"data.jsonl row {number}" for number in (2, 3, 4, 5, 6)}


def test_a_reference_that_takes_too_long_to_parse_is_named():
    endless = "(" * 450 + "5" + ")" * 450
    quick = RewardSpec(type=RewardType.BOXED, timeout_seconds=4)
    with pytest.raises(InvalidDataError, match=r"row 2: .* within reward.timeoutSeconds") as caught:
        check_rows(rows(r"\frac{x}{2}", endless, r"\sqrt{x}"), quick)
    assert len(caught.value.faults) == 1


async def test_it_may_be_called_where_an_event_loop_runs():
    check_rows(rows(r"\frac{x}{2}"), BOXED)


@pytest.mark.parametrize(
    ("tests", "fault"),
    [
        (None, "Required value: at least one test case"),
        (TestCases((), ()), "Required value: at least one test case"),
        (TestCases(("1", "2"), ("1",)), "2 inputs and 1 outputs"),
        (TestCases(("1\nx",), ("1",), function="f"), "test 1 of function 'f': 'x'"),
        (TestCases(("1",), ("one",), function="f"), "'one': must be JSON"),
        (TestCases(("1",), ("",), function="f"), "'': must be JSON"),
    ],
)
def test_unusable_test_cases_are_refused(tests, fault):
    with pytest.raises(InvalidDataError, match=f"data.jsonl row 1: .*{fault}"):
        check_rows([code_row(tests)], CODE)


def test_good_test_cases_are_accepted():
    check_rows([code_row(TestCases(("1\n",), ("text",)))], CODE)


def test_a_custom_reward_that_cannot_be_loaded_is_refused(tmp_path):
    custom = CustomRewardSpec(module=str(tmp_path / "mine.py"))
    with pytest.raises(InvalidInputError, match="no such file"):
        check_rows(rows(None), RewardSpec(type=RewardType.CUSTOM, custom=custom))


def test_a_custom_reward_accepts_rows_of_any_kind(tmp_path):
    (tmp_path / "mine.py").write_text("def reward(completion, row): return 0.0")
    custom = CustomRewardSpec(module=str(tmp_path / "mine.py"))
    check_rows(rows(None, "\\frac{"), RewardSpec(type=RewardType.CUSTOM, custom=custom))
