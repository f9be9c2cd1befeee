"""Comparison of answers: right and wrong pairs, choice letters, words, numbers, rewards."""

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from grpo_trainer.messages import Message, Row
from grpo_trainer.rewards import RIGHT_REWARD, WRONG_REWARD, make_reward
from grpo_trainer.rewards.answers import matches
from grpo_trainer.rewards.numerals import parse_number
from grpo_trainer.spec.reward import RewardSpec, RewardType

RIGHT = [
    # integers and decimals
    ("840", "840"),
    ("4", "004"),
    ("-3", "- 3"),
    ("-3", "\u22123"),
    ("3", "+3"),
    ("1000", "1,000"),
    ("1,234", "1234"),
    ("1000", "1 000"),
    ("1000", r"1\,000"),
    ("1000", "1{,}000"),
    ("1000000", "1e6"),
    ("1000.99", "1,000.99"),
    ("0.5", ".5"),
    ("12", "12.0"),
    ("12", "12."),
    ("5", "\uff15"),
    # fractions and percentages
    (r"\frac{1}{2}", "0.5"),
    (r"\frac12", "1/2"),
    ("1.5", "1 1/2"),
    (r"1\frac{1}{2}", "1.5"),
    ("-1/2", r"\frac{-1}{2}"),
    ("1/3", "0.333333"),
    (r"50\%", "50"),
    (r"50\%", r"\frac12"),
    ("0.5", "50%"),
    ("28", "28 percent"),
    # delimiters, fonts, units
    ("12", "$12$"),
    ("$12$", r"\(12\)"),
    ("12", r"\[ 12 \]"),
    ("73", "**73**"),
    ("12", r"\mathbf{12}"),
    ("10", r"\$10"),
    ("5", r"5 \text{ cm}"),
    ("90^\\circ", "90"),
    # expressions
    ("4", "2 + 2"),
    ("1024", "2^{10}"),
    ("120", "5!"),
    (r"\sqrt{8}", r"2\sqrt{2}"),
    ("x^2 + 2x + 1", "(x + 1)^2"),
    (r"\frac{x}{2}", "0.5x"),
    ("xy", "yx"),
    (r"1 - \frac{1}{\mathrm{e}}", r"\frac{e - 1}{e}"),
    ("2 + 3i", "3i + 2"),
    (r"2\pi", "6.283185"),
    (r"\binom{5}{2}", "10"),
    (r"\int_0^1 2x dx", "1"),
    ("x = 5", "5"),
    ("5", "x = 5"),
    ("x < 5", "5 > x"),
    # several values
    ("1, 2", "2, 1"),
    (r"\{1, 2\}", "1, 2"),
    ("1331 and 1728", "1331, 1728"),
    (r"\boxed{1}, \boxed{2}", "1, 2"),
    ("(1, 2)", r"\left(1, 2\right)"),
    ("[0, 1)", "[0,1)"),
    (
        r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
        r"\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}",
    ),
    # letters and words
    ("B", "B"),
    ("B", r"\text{B}"),
    ("(B)", r"\textbf{(B)}"),
    ("B", "B."),
    ("Evelyn", r"\text{Evelyn}"),
    (r"\text{No solution}", "no solution"),
    ("\u5df4\u9ece", "\u5df4\u9ece"),
]
WRONG = [
    ("12", "13"),
    ("12", "-12"),
    ("1,2", "12"),
    ("12", "1,2"),
    ("12", "{1}{2}"),
    ("3", "{1}{2}"),
    ("12", "1{2}"),
    ("12", "1 2"),
    ("3", "1 2"),
    ("15", "7 8"),
    ("0", "1 000"),
    ("1.2", "1,2"),
    ("-1,2", "-1.2"),
    ("(12)", "(1,2)"),
    ("10000000000000000001", "1e19"),
    ("10000000000000000001", "10000000000000000000"),
    ("0.0000001", "0"),
    ("0.5", "0.5%"),
    ("0.28", "28"),
    ("3", r"\frac{3}{0}"),
    ("1331 and 1728", "1728"),
    ("1728", "1331 and 1728"),
    ("17", "17 or 18"),
    ("4", r"4\sqrt(2)"),
    ("4", r"4\sqrt{2}"),
    ("3*x-1*y+13=0", "3x + 4y + 14=0"),
    ("5", "5;"),
    ("5", "5 +"),
    ("5", "5 ?"),
    ("5", r"5 \foo"),
    ("5", "not 5"),
    ("5", r"\frac{5}"),
    ("5", "5 & 6"),
    ("5", "1" * 2000),
    ("x", "y"),
    ("x = 1", "y = 1"),
    ("(1, 2)", "(2, 1)"),
    ("[0, 1]", "[0, 1)"),
    ("x < 5", "x > 5"),
    ("B", "A"),
    ("B", "A, B, C, D"),
    ("B", "b + 0"),
    ("Paris", "siraP"),
    ("Paris", "Paris or London"),
    ("even", "neve"),
]


def row(answer: str) -> Row:
    return Row(source="data.jsonl row 1", messages=(Message("user", "?"),), answer=answer)


def boxed(gold: str, completion: str) -> float | None:
    return make_reward(RewardSpec(type=RewardType.BOXED))(completion, row(gold)).reward


@pytest.mark.parametrize(("gold", "answer"), RIGHT)
def test_an_answer_that_equals_the_reference_is_right(gold, answer):
    assert boxed(gold, rf"So it is \boxed{{{answer}}}.") == RIGHT_REWARD


@pytest.mark.parametrize(("gold", "answer"), WRONG)
def test_an_answer_that_differs_from_the_reference_is_wrong(gold, answer):
    assert boxed(gold, rf"So it is \boxed{{{answer}}}.") == WRONG_REWARD


@pytest.mark.parametrize(
    ("gold", "completion"),
    [
        ("5", "5"),
        ("5", ""),
        ("B", ""),
        ("5", r"\boxed{5"),
        ("5", r"\boxed{}"),
        ("73", "so 905. Final Answer: **73**"),
        ("1728", "1331 and 1728"),
    ],
)
def test_an_unmarked_answer_is_wrong(gold, completion):
    assert boxed(gold, completion) == WRONG_REWARD


@pytest.mark.parametrize(
    ("gold", "completion"),
    [
        ("840", r"so \boxed{840}., **Final Answer**" + "\n" + r"\boxed{840}"),
        ("4", r"2,552,004 is a sum, which ends in \boxed{004}"),
    ],
)
def test_a_repeated_or_zero_padded_box_is_right(gold, completion):
    assert boxed(gold, completion) == RIGHT_REWARD


def test_tags_around_a_bold_or_boxed_answer_are_right():
    reward = make_reward(RewardSpec(type=RewardType.THINK_ANSWER_TAGS))
    for answer in ("73", "**73**", r"\boxed{73}", "$73$."):
        completion = f"<think>905</think><answer>{answer}</answer>\n"
        assert reward(completion, row("73")).reward == RIGHT_REWARD


def test_a_right_answer_in_malformed_tags_is_accurate_without_a_reward():
    reward = make_reward(RewardSpec(type=RewardType.THINK_ANSWER_TAGS))
    score = reward("<answer>73</answer>", row("73"))
    assert (score.reward, score.accuracy, score.format_accuracy) == (WRONG_REWARD, 1.0, 0.0)


def test_a_wrong_answer_in_good_tags_has_only_format_accuracy():
    reward = make_reward(RewardSpec(type=RewardType.THINK_ANSWER_TAGS))
    score = reward("<think></think><answer>72</answer>", row("73"))
    assert (score.reward, score.accuracy, score.format_accuracy) == (WRONG_REWARD, 0.0, 1.0)


integers = st.integers(-(10**12), 10**12)
spellings = st.sampled_from(
    [
        "{}",
        "{:,}",
        " {} ",
        "${}$",
        "+{}",
        "{}.0",
        "{}/1",
        r"\text{{{}}}",
        r"\frac{{{}}}{{1}}",
        "x = {}",
    ]
)


@settings(deadline=None)
@given(gold=integers, other=integers, spelling=spellings)
def test_no_spelling_of_another_integer_is_right(gold, other, spelling):
    assume(gold != other)
    assert boxed(str(gold), rf"\boxed{{{spelling.format(other)}}}") == WRONG_REWARD


@settings(deadline=None)
@given(gold=integers, spelling=spellings)
def test_every_spelling_of_the_same_integer_is_right(gold, spelling):
    assume(gold >= 0 or not spelling.startswith("+"))
    assert boxed(str(gold), rf"\boxed{{{spelling.format(gold)}}}") == RIGHT_REWARD


@settings(deadline=None)
@given(
    first=st.integers(1, 999),
    second=st.integers(0, 99),
    spelling=st.sampled_from(["{{{}}}{{{}}}", "{}{{{}}}", "{} {}", "{}\n{}", r"{}\ {}"]),
)
def test_integers_side_by_side_are_neither_joined_nor_added_nor_multiplied(first, second, spelling):
    answer = spelling.format(first, second)
    for gold in (f"{first}{second}", first + second, first * second, first, second):
        assert not matches(str(gold), answer)


@given(integers, st.integers(1, 10**6))
def test_a_ratio_is_read_exactly(numerator, denominator):
    number = parse_number(f"{numerator}/{denominator}")
    assert number is not None
    assert number.value == Fraction(numerator, denominator)


@given(st.text(max_size=40))
def test_white_space_around_a_text_does_not_change_the_number_in_it(text):
    assert parse_number(f" {text} ") == parse_number(text.strip())
