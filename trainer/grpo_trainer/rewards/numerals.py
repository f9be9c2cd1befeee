"""Plain numerals and their exact comparison: most answers, without a computer algebra system."""

import re
from dataclasses import dataclass
from fractions import Fraction

_DECIMALS = Fraction(1, 10**6)
_MAX_DIGITS = 300
_THIN_SPACE = re.compile(r"\\[,;:!\s]|~")
_PERCENT = re.compile(r"\s*(?:\\?%|percent|percentage|pct)$")
_GROUPED = re.compile(r"([+-]?[1-9]\d{0,2})([ ,])(\d{3}(?:\2\d{3})*)((?:\.\d*)?)")
_DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,2})?")
_RATIO = re.compile(
    r"""(?P<sign>[+-]?)\s*
    (?: (?:(?P<whole>\d+)\s+)? (?P<a>\d+)\s*/\s*(?P<b>\d+)
      | \\[dtc]?frac\s*(?:\{(?P<minus>-?)(?P<c>\d+)\}\s*\{(?P<d>\d+)\} | (?P<e>\d)(?P<f>\d)) )""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Number:
    """A numeral as written."""

    value: Fraction
    """Before the percent sign."""
    exact: bool
    """False for decimals, which may be rounded."""
    percent: bool


def parse_number(text: str) -> Number | None:
    r"""Read an integer, a decimal, `1e6`, `1/2`, `1 1/2` or `\frac{1}{2}`; None for all else.

    Thousands may be grouped by commas or spaces, and a percent sign may follow.
    """
    if len(text) > _MAX_DIGITS:
        return None
    text = _THIN_SPACE.sub(" ", text.replace("{,}", ",")).strip()
    bare = _PERCENT.sub("", text)
    percent = bare != text
    if grouped := _GROUPED.fullmatch(bare):
        head, separator, tail, fraction = grouped.groups()
        bare = head + tail.replace(separator, "") + fraction
    bare = re.sub(r"^([+-])\s+", r"\1", bare)
    if _DECIMAL.fullmatch(bare):
        value = Fraction(bare.rstrip("."))
        return Number(value, exact=not re.search("[.eE]", bare.rstrip(".")), percent=percent)
    ratio = _ratio(bare)
    return None if ratio is None else Number(ratio, exact=True, percent=percent)


def _ratio(text: str) -> Fraction | None:
    match = _RATIO.fullmatch(text)
    if match is None:
        return None
    group = match.groupdict()
    numerator = int(group["a"] or group["c"] or group["e"])
    denominator = int(group["b"] or group["d"] or group["f"])
    if denominator == 0:
        return None
    negative = (group["sign"] == "-") != (group["minus"] == "-")
    value = int(group["whole"] or 0) + Fraction(numerator, denominator)
    return -value if negative else value


def numbers_match(gold: Number, answer: Number) -> bool:
    """Equal values; a percentage may be given as `50%`, 50 or 0.5, where no 50 could be meant."""
    tolerant = not (gold.exact and answer.exact)
    if gold.percent == answer.percent:
        return _close(gold.value, answer.value, tolerant)
    if gold.percent:
        values = (answer.value, answer.value * 100)
    else:
        # A reference below 1 without a sign is a share: 0.5 is not 0.5%.
        values = (answer.value / 100, *((answer.value,) if abs(gold.value) >= 1 else ()))
    return any(_close(gold.value, value, tolerant) for value in values)


def _close(gold: Fraction, answer: Fraction, tolerant: bool) -> bool:
    """Exact, or for decimals to six places, fewer near zero, where they would be no precision."""
    if not tolerant:
        return gold == answer
    return abs(gold - answer) <= _DECIMALS * min(Fraction(1), 1000 * abs(gold))
