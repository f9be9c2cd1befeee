"""Pairs of a reference and an answer with the right verdict, by the kind of notation.

Aspects: tiny and huge numbers, scientific notation, intervals and inequalities, numbers side by
side, units, degrees, currencies, percent, thousands, mixed numbers, repeating decimals, characters
of Unicode, sets and tuples.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_trainer.rewards.answers import is_usable, matches

RIGHT = [
    (r"2\sqrt{2}", "2\u221a2"),
    (r"\sqrt{x + 1}", "\u221a(x + 1)"),
    (r"\pm 2", "\u00b12"),
    ("0.0000001", r"1\times 10^{-7}"),
    ("3e8", r"3\times 10^{8}"),
    (r"3\times 10^{8}", "3e8"),
    (r"3\times 10^{8}", "300000000"),
    ("3e8", r"3 \cdot 10^8"),
    ("300000000", "3 \xd7 10\u2078"),
    (r"6.02\times 10^{23}", "6.02e23"),
    ("10^{-3}", "0.001"),
    (r"\pi \times 10^{-8}", r"3.14159265\times 10^{-8}"),
    ("1/6", "0.166667"),
    (r"[5, \infty)", r"x \ge 5"),
    (r"x \ge 5", r"[5, \infty)"),
    (r"(5, \infty)", "x > 5"),
    ("x > 5", r"(5, \infty)"),
    ("(1,2)", "1<x<2"),
    ("1<x<2", "(1,2)"),
    (r"x \in [5, \infty)", r"[5, \infty)"),
    (r"[5, \infty)", r"x \in [5, \infty)"),
    (r"(-\infty, 2) \cup (3, \infty)", r"x<2 \text{ or } x>3"),
    ("-1", "1 -2"),
    ("5", "5 cm"),
    ("5 cm", "5"),
    ("5 cm", r"5\text{ cm}"),
    ("5", "5 apples"),
    ("12000000", "12 million"),
    ("12 thousand", "12000"),
    ("5 km/h", r"5 \text{ km/h}"),
    (r"25 \text{ cm}^2", "25"),
    ("90", "90\xb0"),
    ("90", r"90^{\circ}"),
    ("90", "90 degrees"),
    (r"90^\circ", "90"),
    (r"\$10", "10"),
    ("10", "\u20ac10"),
    ("10", "10 dollars"),
    ("50%", "0.5"),
    ("50%", "50"),
    ("12.5%", "1/8"),
    ("1%", "1"),
    ("1000", "1,000"),
    ("1000", "1'000"),
    ("1234567", "1,234,567"),
    ("1000", "1{,}000"),
    ("3/2", r"1\frac{1}{2}"),
    ("3/2", r"1 \frac{1}{2}"),
    ("3/2", "1\xbd"),
    ("0.5", "\xbd"),
    ("-3/2", r"-1\frac{1}{2}"),
    ("1/3", r"0.\overline{3}"),
    ("1/6", r"0.1\overline{6}"),
    ("5", "\u0665"),
    ("-3", "\u20133"),
    ("-3", "\uff0d3"),
    (r"\{1,2\}", "2,1"),
    (r"\sqrt2", "1.414214"),
    ("6", "2\xd73"),
    (r"2\pi", "2\u03c0"),
    ("x^2", "x\xb2"),
    ("5", "5."),
    ("7", "7 units"),
    ("1:2", "1/2"),
    ("1/2", "1:2"),
    ("2,3", "2;3"),
    ("1.5", "3/2 hours"),
    ("0.1", "0.10"),
    ("1e3", "1000"),
    ("100", "1e2"),
    (r"\pm 5", "5,-5"),
    (r"5\sqrt{2} \text{ cm}", r"5\sqrt{2}"),
    ("12", r"12 \text{ apples}"),
    ("5 inches", "5 in"),
    ("5 feet", r"5 \text{ ft}"),
    ("25 square feet", r"25 \text{ ft}^2"),
    (r"1.5 \times 10^{6}", "1.5 million"),
    ("0.25", r"25\%"),
    ("[0, 1]", r"0 \le x \le 1"),
    (r"0 \le x \le 1", "[0,1]"),
    ("1/7", r"0.\overline{142857}"),
    ("3 dozen", "36"),
    (r"45\degree", "45"),
    ("20", r"20^\circ\text{C}"),
]
WRONG = [
    ("0.0000001", r"2\times 10^{-7}"),
    ("3e8", r"4\times 10^8"),
    (r"6.02\times 10^{23}", "6.022e23"),
    ("1e-10", "0"),
    ("0", "1e-10"),
    ("1e-10", "2e-10"),
    (r"\sqrt{2}\times 10^{-7}", r"2\times 10^{-7}"),
    (r"\frac{\sqrt{2}}{10^{8}}", r"\frac{\sqrt{3}}{10^{8}}"),
    (r"\{10^{-7}, 1\}", r"\{2\times 10^{-7}, 1\}"),
    ("1/3", "0.3333"),
    ("1000000.5", "1000000"),
    ("x > 5", r"[5, \infty)"),
    (r"[5, \infty)", "x > 5"),
    ("3", r"1 \quad 2"),
    ("12", r"1 \quad 2"),
    ("2", r"1 \quad 2"),
    ("3", r"1 \qquad 2"),
    ("12", r"1\hspace{1em}2"),
    ("3", r"1\hspace{1em}2"),
    ("1000", r"1 \quad 000"),
    ("1.5", r"1 \quad 1/2"),
    ("1.5", r"1 \quad \frac{1}{2}"),
    ("12", r"1\\2"),
    ("3", r"1\\2"),
    ("12", r"1 \text{ } 2"),
    ("2", r"1 \text{ } 2"),
    ("12", "1;2"),
    ("3", "1;2"),
    ("12", r"1\!2"),
    ("12", r"1\enspace 2"),
    ("3", "1 & 2"),
    ("12", "1|2"),
    ("12", r"1\mbox{ }2"),
    ("3", "1\t2"),
    ("5 cm", "5 m"),
    (r"5 \text{ m}", r"5 \text{ cm}"),
    ("12", "12 million"),
    (r"25 \text{ cm}^2", r"25 \text{ cm}^3"),
    ("5", "5x"),
    (r"90^\circ", r"45^\circ"),
    ("0.5", "50"),
    ("1000", "1_000"),
    ("1234567", "1,23,4567"),
    ("1000", "1,00,0"),
    ("1/2", r"-\frac12"),
    ("1/3", r"0.\overline{4}"),
    ("2", "5\u20133"),
    ("(1,2)", "(2,1)"),
    (r"\{1,2\}", r"\{1,2,3\}"),
    (r"\{1,2\}", "1"),
    (r"\sqrt2", "1.414"),
    ("5", "five"),
    ("-5", "5"),
    ("\xb15", "5"),
    ("5 inches", "5 cm"),
    ("25 square feet", "25 feet"),
    ("20", r"21^\circ\text{C}"),
    ("[0, 1]", "0 < x < 1"),
    ("(0, 1)", r"0 \le x \le 1"),
    ("36", "36 dozen"),
    ("5", "5 pi"),
    ("1e300", "2e300"),
    ("1e-300", "2e-300"),
    ("0.0000012", "0.0000013"),
    ("1.0000001", "1.0000009e0 + 1"),
    (r"\sqrt{2}\times 10^{-20}", r"\sqrt{3}\times 10^{-20}"),
]


@pytest.mark.parametrize(("reference", "answer"), RIGHT)
def test_another_notation_of_the_reference_is_right(reference, answer):
    assert matches(reference, answer)


@pytest.mark.parametrize(("reference", "answer"), WRONG)
def test_another_value_is_wrong(reference, answer):
    assert not matches(reference, answer)


@pytest.mark.parametrize("reference", sorted({pair[0] for pair in RIGHT + WRONG}))
def test_every_reference_is_usable(reference):
    assert is_usable(reference)


INTERVALS = [
    (r"[5, \infty)", r"x \ge 5"),
    (r"(5, \infty)", "x > 5"),
    ("(1, 2)", "1 < x < 2"),
    ("[1, 2)", r"1 \le x < 2"),
    (r"(-\infty, 2) \cup (3, \infty)", r"x < 2 \text{ or } x > 3"),
    ("[5, 6]", r"x \in [5, 6]"),
    (r"[5, \infty)", r"5 \le x"),
    (r"[5, \infty)", r"\{x \mid x \ge 5\}"),
    (r"[5, \infty)", r"\left\{ x \in \mathbb{R} : x \ge 5 \right\}"),
    ("(-2, 2)", "|x| < 2"),
    (r"(-\infty, 2) \cup (2, \infty)", r"x \ne 2"),
    ("(2, 3)", r"x > 2 \text{ and } x < 3"),
]


@pytest.mark.parametrize(("interval", "inequality"), INTERVALS)
def test_an_interval_equals_its_inequality_whichever_is_the_reference(interval, inequality):
    assert matches(interval, inequality)
    assert matches(inequality, interval)


@settings(deadline=None)
@given(digits=st.integers(1, 9), exponent=st.integers(-30, 30))
def test_numbers_of_any_magnitude_differ_by_their_leading_digit(digits, exponent):
    reference = rf"{digits} \times 10^{{{exponent}}}"
    assert matches(reference, f"{digits}e{exponent}")
    for other in {1, 2, 3, 4, 5, 6, 7, 8, 9} - {digits}:
        assert not matches(reference, rf"{other} \times 10^{{{exponent}}}")
        assert not matches(f"{digits}e{exponent}", f"{other}e{exponent}")


TINY = [
    ("({}, 1)", "a tuple"),
    (r"\{{{}, 1\}}", "a set"),
    ("(0, {}]", "an interval"),
    ("x = {}", "an equation"),
    ("x > {}", "an inequality"),
    ("{} x", "a term"),
    ("{} i", "a complex number"),
    (r"\begin{{pmatrix}} {} \\ 1 \end{{pmatrix}}", "a matrix"),
]


@pytest.mark.parametrize(("form", "_"), TINY, ids=[name for _, name in TINY])
def test_tiny_numbers_inside_another_form_differ(form, _):
    reference = form.format(r"10^{-7}")
    assert matches(reference, form.format(r"10^{-7}"))
    assert not matches(reference, form.format(r"2 \times 10^{-7}"))


SEPARATORS = [
    r"\,",
    r" \ldots ",
    "...",
    r" \phantom{0} ",
    r" \displaystyle ",
    "$ $",
    r"\) \(",
    ":",
    "|",
    "{}",
]


@pytest.mark.parametrize("separator", SEPARATORS)
def test_no_separator_joins_adds_or_multiplies_two_numbers(separator):
    for reference in ("12", "3", "2", "1"):
        assert not matches(reference, f"1{separator}2")


SPACES = [
    r"\quad",
    r"\qquad",
    r"\enspace",
    r"\hspace{1em}",
    r"\text{ }",
    r"\;",
    "~",
    r"\ ",
    " ",
    "\n",
]


@settings(deadline=None)
@given(first=st.integers(1, 999), second=st.integers(0, 99), space=st.sampled_from(SPACES))
def test_no_space_joins_adds_or_multiplies_two_numbers(first, second, space):
    answer = f"{first} {space} {second}"
    for reference in (f"{first}{second}", first + second, first * second, first, second):
        assert not matches(str(reference), answer)
