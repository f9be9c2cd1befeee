"""The rules of one row.

Aspects: forms of a prompt, roles, answers and what they become, test cases, columns of each
reward type, names of columns, independence of rows.
"""

import json
from decimal import Decimal
from typing import Any

import pytest

from grpo_trainer.data.files import Record
from grpo_trainer.data.rows import parse_row
from grpo_trainer.messages import Message, Row, TestCases
from grpo_trainer.rewards import row_needs
from grpo_trainer.row_faults import RowFault
from grpo_trainer.spec import RewardSpec, RewardType
from grpo_trainer.spec.training import DatasetSpec

USER = {"role": "user", "content": "1+1?"}
SYSTEM = {"role": "system", "content": "Be brief."}
ASSISTANT = {"role": "assistant", "content": "2"}
TESTS = {"inputs": ["1 1\n", "2 2\n"], "outputs": ["2", "4"]}


def parse(
    columns: dict[str, Any], reward: RewardType = RewardType.BOXED, **names: str
) -> Row | tuple[RowFault, ...]:
    needs = row_needs(RewardSpec(type=reward))
    return parse_row(Record("data.jsonl line 1", columns), DatasetSpec(**names), needs)


def faults_of(columns: dict[str, Any], **names: str) -> tuple[RowFault, ...]:
    faults = parse(columns, **names)
    assert isinstance(faults, tuple), faults
    return faults


def row_of(columns: dict[str, Any], reward: RewardType = RewardType.BOXED, **names: str) -> Row:
    row = parse(columns, reward, **names)
    assert isinstance(row, Row), row
    return row


def fault_of(columns: dict[str, Any], reward: RewardType = RewardType.BOXED, **names: str) -> str:
    faults = parse(columns, reward, **names)
    assert isinstance(faults, tuple), faults
    assert len(faults) == 1
    return str(faults[0])


@pytest.mark.parametrize(
    ("messages", "turns"),
    [
        ("1+1?", (Message("user", "1+1?"),)),
        (USER, (Message("user", "1+1?"),)),
        ([USER], (Message("user", "1+1?"),)),
        ([SYSTEM, USER], (Message("system", "Be brief."), Message("user", "1+1?"))),
        (
            [USER, ASSISTANT, USER],
            (Message("user", "1+1?"), Message("assistant", "2"), Message("user", "1+1?")),
        ),
        ([{**USER, "name": None}], (Message("user", "1+1?"),)),
    ],
    ids=["question", "one message", "list", "with system", "dialogue", "further keys"],
)
def test_a_prompt_may_be_a_question_a_message_or_a_conversation(messages, turns):
    assert row_of({"messages": messages, "gt_answer": "2"}).messages == turns


@pytest.mark.parametrize("messages", [USER, [USER], [SYSTEM, USER], [USER, ASSISTANT, USER]])
def test_messages_may_be_given_as_their_json_text(messages):
    as_text = row_of({"messages": json.dumps(messages), "gt_answer": "2"})
    assert as_text == row_of({"messages": messages, "gt_answer": "2"})


@pytest.mark.parametrize(
    "text", ['[{"role": "user"', "[{'role': 'user', 'content': '1+1?'}]", '[{"from": "human"}]']
)
def test_text_that_looks_like_messages_and_is_not_their_json_is_refused(text):
    assert "Invalid value" in fault_of({"messages": text, "gt_answer": "2"})


@pytest.mark.parametrize("text", ["[1, 2, 3]: sort it", "[1, 2]", '{"a": 1}', "{role}", "[", "3"])
def test_a_question_may_contain_json(text):
    assert row_of({"messages": text, "gt_answer": "2"}).messages == (Message("user", text),)


def test_tool_calls_and_other_keys_reach_the_template():
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": None}}}
    turns = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_call_id": "1", "tool_calls": None},
    ]
    _, assistant, tool = row_of({"messages": turns, "gt_answer": "2"}).messages
    function = {"name": "add", "arguments": {"a": 1}}
    calls = [{"type": "function", "function": function}]
    assert assistant == Message("assistant", "", {"tool_calls": calls})
    assert tool == Message("tool", "2", {"tool_call_id": "1"})


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (None, "Invalid value: null"),
        (3, "Invalid value: 3"),
        ("", 'content ""'),
        (" \n", "content"),
        ([], "Invalid value: []"),
        (["1+1?"], 'message "1+1?"'),
        ([{"role": "user"}], "must be {role, content}"),
        ([{"role": "human", "content": "1+1?"}], 'role "human"'),
        ([{"role": ["user"], "content": "1+1?"}], 'role ["user"]'),
        ([{"role": "user", "content": ""}], 'content ""'),
        ([{"role": "user", "content": None}], "content null"),
        ([{"role": "user", "content": [{"type": "text", "text": "1+1?"}]}], "non-empty text"),
        ([SYSTEM], "at least one message with role user"),
        ([USER, ASSISTANT], "must not end with a message of role assistant"),
    ],
)
def test_an_invalid_prompt_is_refused(messages, message):
    fault = fault_of({"messages": messages, "gt_answer": "2"})
    assert fault.startswith("data.jsonl line 1, column 'messages': Invalid value: ")
    assert message in fault


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("2", "2"),
        (" 2\n", " 2\n"),
        (2, "2"),
        (-0.5, "-0.5"),
        (1e16, "10000000000000000"),
        (1e-7, "0.0000001"),
        (0, "0"),
        (Decimal("12.50"), "12.50"),
    ],
)
def test_an_answer_is_a_text_or_a_number_without_exponent(value, answer):
    assert row_of({"messages": "1+1?", "gt_answer": value}).answer == answer


@pytest.mark.parametrize(
    "value",
    [None, "", " \n", True, ["2"], {"value": 2}, float("nan"), float("inf"), Decimal("NaN")],
)
def test_an_answer_of_another_kind_is_refused(value):
    fault = fault_of({"messages": "1+1?", "gt_answer": value})
    assert fault.startswith("data.jsonl line 1, column 'gt_answer': Invalid value: ")
    assert "must be a non-empty text or a finite number" in fault


@pytest.mark.parametrize("reward", [RewardType.BOXED, RewardType.THINK_ANSWER_TAGS])
def test_the_fault_of_a_missing_answer_lists_the_columns_of_the_row(reward):
    fault = fault_of({"messages": "1+1?", "answer": "#### 2"}, reward)
    assert "column 'gt_answer': Required value" in fault
    assert 'the row has ["messages", "answer"]' in fault


def test_rows_are_checked_independently():
    with_answer, without = {"messages": "1+1?", "gt_answer": "2"}, {"messages": "1+1?"}
    for rows in ([with_answer, without], [without, with_answer]):
        parsed = [parse(row) for row in rows]
        assert sorted(isinstance(row, Row) for row in parsed) == [False, True]


def test_columns_may_have_other_names():
    row = row_of({"question": "1+1?", "a": 2}, prompt_column="question", answer_column="a")
    assert (row.messages, row.answer) == ((Message("user", "1+1?"),), "2")


@pytest.mark.parametrize("tests", [TESTS, json.dumps(TESTS)], ids=["object", "json text"])
def test_a_code_row_has_tests_and_no_answer(tests):
    row = row_of({"messages": "add", "test_cases": tests, "gt_answer": "2"}, RewardType.CODE)
    assert row.tests == TestCases(("1 1\n", "2 2\n"), ("2", "4"))
    assert row.answer is None


def test_tests_may_name_a_function():
    tests = {**TESTS, "fn_name": "add"}
    row = row_of({"messages": "add", "test_cases": tests}, RewardType.CODE)
    assert row.tests is not None
    assert row.tests.function == "add"


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        (None, "Invalid value: null"),
        ("{", "at character 2"),
        (r'{"inputs": ["\ud800"], "outputs": ["1"]}', r"('\ud800') in 'inputs'"),
        ("[]", "Invalid value: []"),
        ('{"inputs": [NaN]}', "NaN"),
        ({"inputs": ["1"]}, "outputs null"),
        ({"inputs": "1", "outputs": ["1"]}, 'inputs "1"'),
        ({"inputs": [1], "outputs": ["1"]}, "inputs [1]"),
        ({"inputs": [], "outputs": []}, "0 inputs and 0 outputs"),
        ({"inputs": ["1", "2"], "outputs": ["1"]}, "2 inputs and 1 outputs"),
        ({**TESTS, "fn_name": "a b"}, 'fn_name "a b"'),
        ({**TESTS, "fn_name": ""}, 'fn_name ""'),
    ],
)
def test_tests_that_cannot_be_run_are_refused(tests, message):
    fault = fault_of({"messages": "add", "test_cases": tests}, RewardType.CODE)
    assert fault.startswith("data.jsonl line 1, column 'test_cases': Invalid value: ")
    assert message in fault


def test_a_custom_reward_needs_only_the_prompt_and_receives_the_whole_row():
    columns = {"messages": "Write a poem.", "mood": "sad", "gt_answer": ["a", "b"]}
    row = row_of(columns, RewardType.CUSTOM)
    assert (row.answer, row.tests, row.columns) == (None, None, columns)


def test_a_custom_reward_may_have_answer_and_tests():
    columns = {"messages": "add", "gt_answer": 2, "test_cases": TESTS}
    row = row_of(columns, RewardType.CUSTOM)
    assert (row.answer, row.tests) == ("2", TestCases(("1 1\n", "2 2\n"), ("2", "4")))


def test_all_faults_of_a_row_are_found():
    faults = parse({"messages": "", "gt_answer": ""})
    assert isinstance(faults, tuple)
    assert [fault.column for fault in faults] == ["messages", "gt_answer"]


def test_a_long_value_is_shortened_in_its_fault():
    assert len(fault_of({"messages": "1+1?", "gt_answer": ["9" * 10_000]})) < 200


def test_a_template_makes_the_users_message_from_columns():
    columns = {"question": "1+1?", "unit": 3, "gt_answer": "2"}
    row = row_of(columns, promptTemplate="{question} In {unit}, in a box: \\boxed{{}}.")
    assert row.messages == (Message("user", "1+1? In 3, in a box: \\boxed{}."),)


def test_a_column_that_a_template_reads_is_required():
    (fault,) = faults_of({"gt_answer": "2"}, promptTemplate="{question}")
    assert str(fault).startswith("data.jsonl line 1, column 'question': Required value: ")
    (fault,) = faults_of({"question": " ", "gt_answer": "2"}, promptTemplate="{question}")
    assert "must be a non-empty text or a finite number" in str(fault)


def test_a_pattern_reads_the_reference_answer():
    columns = {"messages": "1+1?", "gt_answer": "One and one is 2.\n#### 2"}
    assert row_of(columns, answerPattern=r"#### (.+)").answer == "2"
    (fault,) = faults_of({"messages": "1+1?", "gt_answer": "2"}, answerPattern="#### (.+)")
    assert str(fault).endswith("Invalid value: \"2\": must match '#### (.+)'")
