"""Numerals and their exact comparison: most answers, without a computer algebra system."""

import re
from dataclasses import dataclass
from fractions import Fraction

_RELATIVE, _ABSOLUTE = Fraction(5, 10**6), Fraction(1, 10**6)
_MAX_DIGITS = 300
_PERCENT = re.compile(r"\s*(?:\\?%|percent|percentage|pct)$")
SCALES = {
    "dozen": 12,
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
"""Number words that may follow a numeral."""
_SCALE = re.compile(rf"\s+({'|'.join(SCALES)})s?$")
_GROUPED = re.compile(r"([+-]?[1-9]\d{0,2})([ ,'])(\d{3}(?:\2\d{3})*)((?:\.\d*)?)")
_DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")
_REPEATING = re.compile(r"([+-]?)(\d*)\.(\d*)\\(?:overline|bar|dot)\s*\{?(\d+)\}?")
_SCIENTIFIC = re.compile(
    r"(?:([+-]?(?:\d+(?:\.\d*)?|\.\d+))\s*(?:\\times|\\cdot|[*x])\s*)?10\s*\^\s*"
    r"(?:\{\s*([+-]?\d{1,3})\s*\}|([+-]?\d{1,3}))"
)
_RATIO = re.compile(
    r"""(?P<sign>[+-]?)\s?(?:(?P<whole>\d+)\ )?(?P<a>\d+)\s?/\s?(?P<b>\d+)
      | (?P<sign2>[+-]?)\s?(?P<whole2>\d*)\ ?
        \\[dtc]?frac\s*(?:\{(?P<minus>-?)(?P<c>\d+)\}\s*\{(?P<d>\d+)\} | (?P<e>\d)(?P<f>\d))""",
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
    r"""Read an integer, a decimal, `1e6`, `2\times 10^{6}`, `1/2`, `1\frac{1}{2}`,
    `0.\overline{3}` or `2 million`; None for anything else.

    Thousands may be grouped by commas, apostrophes or single spaces; a percent sign may follow.
    """
    if len(text) > _MAX_DIGITS:
        return None
    text = text.replace("{,}", ",").strip()
    bare = _PERCENT.sub("", text)
    percent = bare != text
    scale = 1
    if word := _SCALE.search(bare):
        bare, scale = bare[: word.start()], SCALES[word.group(1)]
    value, exact = _decimal(bare)
    if value is None:
        value, exact = _other(bare), True
    return None if value is None else Number(value * scale, exact=exact, percent=percent)


def numbers_match(reference: Number, answer: Number) -> bool:
    """Equal values; a percentage may be given as `50%`, 50 or 0.5, where no 50 could be meant."""
    tolerant = not (reference.exact and answer.exact)
    if reference.percent == answer.percent:
        return _close(reference.value, answer.value, tolerant)
    if reference.percent:
        values = (answer.value, answer.value * 100)
    else:
        # A reference below 1 without a sign is a share: 0.5 is not 0.5%.
        whole = (answer.value,) if abs(reference.value) >= 1 else ()
        values = (answer.value / 100, *whole)
    return any(_close(reference.value, value, tolerant) for value in values)


def _decimal(text: str) -> tuple[Fraction | None, bool]:
    """The value of decimal digits and whether it is exact, that is without point and exponent."""
    if grouped := _GROUPED.fullmatch(text):
        head, separator, tail, fraction = grouped.groups()
        text = head + tail.replace(separator, "") + fraction
    text = re.sub(r"^([+-])\s+", r"\1", text).rstrip(".")
    if not _DECIMAL.fullmatch(text):
        return None, False
    return Fraction(text), not re.search("[.eE]", text)


def _other(text: str) -> Fraction | None:
    """Powers of ten, ratios and repeating decimals, which are exact."""
    if match := _SCIENTIFIC.fullmatch(text):
        factor, braced, plain = match.groups()
        exponent = int(braced or plain)
        power: Fraction = Fraction(10**exponent) if exponent >= 0 else Fraction(1, 10**-exponent)
        return Fraction(factor or 1) * power
    if match := _REPEATING.fullmatch(text):
        sign, whole, fixed, period = match.groups()
        periods = int("9" * len(period) + "0" * len(fixed))
        value = Fraction(int(whole + fixed + period) - int(whole + fixed or 0), periods)
        return -value if sign == "-" else value
    return _ratio(text)


def _ratio(text: str) -> Fraction | None:
    match = _RATIO.fullmatch(text)
    if match is None:
        return None
    group = match.groupdict()
    numerator = int(group["a"] or group["c"] or group["e"])
    denominator = int(group["b"] or group["d"] or group["f"])
    if denominator == 0:
        return None
    negative = ((group["sign"] or group["sign2"]) == "-") != (group["minus"] == "-")
    value = int(group["whole"] or group["whole2"] or 0) + Fraction(numerator, denominator)
    return -value if negative else value


def _close(reference: Fraction, answer: Fraction, tolerant: bool) -> bool:
    """Exact, or for decimals to six significant digits, and to six decimal places above 0.2."""
    if not tolerant:
        return reference == answer
    return abs(reference - answer) <= min(_ABSOLUTE, _RELATIVE * abs(reference))
