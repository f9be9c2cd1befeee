"""Where completions mark their answers: tags, boxes, Python blocks; which forms are valid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.rewards.boxed import boxed_answer
from grpo_trainer.rewards.code import python_block
from grpo_trainer.rewards.extraction import boxes
from grpo_trainer.rewards.think_answer_tags import think_answer

GOOD = "<think>2 + 2</think><answer>4</answer>"


def test_a_completion_with_each_tag_once_and_in_order_is_well_formed():
    extraction = think_answer(GOOD)
    assert (extraction.answer, extraction.well_formed) == ("4", True)


def test_white_space_after_the_last_tag_is_well_formed():
    assert think_answer(GOOD + " \n\n").well_formed


@pytest.mark.parametrize(
    "completion",
    [
        "4",
        "<answer>4</answer>",
        "<think>2 + 2<answer>4</answer>",
        "<answer>4</answer><think>2 + 2</think>",
        "<think>2 + 2<answer>4</think></answer>",
        GOOD + GOOD,
        GOOD + "<answer>4</answer>",
        GOOD + " so it is 4",
        GOOD.removesuffix("</answer>"),
    ],
)
def test_missing_doubled_or_misplaced_tags_and_trailing_text_are_malformed(completion):
    assert not think_answer(completion).well_formed


def test_the_last_marked_answer_counts():
    assert think_answer("<answer>3</answer> no: <answer>4</answer>").answer == "4"


def test_an_answer_cut_off_before_its_closing_tag_is_not_marked():
    assert think_answer("<think>x</think><answer>4").answer is None
    assert think_answer("<answer>3</answer> no: <answer>4").answer == "3"


def test_an_empty_answer_is_none():
    assert think_answer("<think>x</think><answer> \n</answer>").answer is None


def test_the_last_box_counts():
    assert boxed_answer(r"so \boxed{840}., **Final Answer** \boxed{841}").answer == "841"


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {5}", "5"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{\boxed{5}}", r"\boxed{5}"),
        (r"{ \boxed{5} } }", "5"),
        (r"\boxed{4} and then \boxed{5", "4"),
        (r"\boxed{4 \boxed{5}", "5"),
    ],
)
def test_a_box_ends_at_its_own_brace(completion, answer):
    assert boxed_answer(completion).answer == answer


@pytest.mark.parametrize(
    "completion", ["", "5", r"\boxed{5", r"\boxed{{5}", r"\boxed5", "boxed{5}"]
)
def test_a_completion_without_a_closed_box_marks_nothing(completion):
    extraction = boxed_answer(completion)
    assert (extraction.answer, extraction.well_formed) == (None, False)


def test_an_empty_last_box_marks_nothing_even_after_a_full_one():
    extraction = boxed_answer(r"\boxed{5} \boxed{ }")
    assert (extraction.answer, extraction.well_formed) == (None, False)


def test_nested_boxes_are_one_and_neighbours_are_two():
    assert boxes(r"\boxed{a \boxed{b} c} \boxed{d}") == (r"a \boxed{b} c", "d")


balanced = st.recursive(
    st.text("ab12 +,", max_size=5) | st.sampled_from([r"\{", r"\}", r"\\", r"\pi "]),
    lambda inner: (
        st.lists(inner, max_size=3).map("".join) | inner.map(lambda text: "{" + text + "}")
    ),
    max_leaves=8,
)


@given(
    before=st.text(r"ab{}\ $" + "\n", max_size=30) | st.just(r"\boxed{"),
    content=balanced,
    after=st.text("ab ,.$", max_size=10),
)
def test_the_last_balanced_box_is_found_after_any_text(before, content, after):
    completion = rf"{before} \boxed{{{content}}}{after}"
    assert boxed_answer(completion).answer == (content.strip() or None)


def test_the_last_closed_python_block_is_the_program():
    completion = (
        "```python\na = 1\n```\ntext\n```py\nb = 2\n```\n```\nnot code\n```\n```python\nc = 3"
    )
    extraction = python_block(completion)
    assert (extraction.answer, extraction.well_formed) == ("b = 2\n", True)


@pytest.mark.parametrize(
    "completion", ["print(1)", "```\nprint(1)\n```", "```python\n\n```", "```sh\nls\n```"]
)
def test_code_outside_a_python_block_is_no_program(completion):
    extraction = python_block(completion)
    assert (extraction.answer, extraction.well_formed) == (None, False)


def test_fences_inside_a_line_of_the_program_do_not_end_it():
    program = "print('```')\nprint(2)\n"
    assert python_block(f"```python\n{program}```").answer == program
