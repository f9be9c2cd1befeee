"""Units after an answer: `5 \\text{ cm}`, `5 cm`, `90^\\circ`, `12 apples`."""

import re

from .numerals import SCALES

_DEGREE = re.compile(
    r"\s*(?:\^\s*\{?\s*\\circ\s*\}?|\\degree|°)"
    r"\s*(?:\\(?:text|mathrm)\s*\{\s*)?(?P<scale>[CFK]?)\}?$"
)
_CURRENCY = {"€": "euro", "£": "pound", "¥": "yen"}
_POWER = r"\s*(?:\^\s*\{?\s*(?P<power>[23])\s*\}?)?"
_IN_TEXT = re.compile(
    r"\s*(?:\\[,;: ])*\\(?:text(?:rm|bf|it)?|mathrm|mbox|rm)\s*\{(?P<unit>[^{}\\\d]+)\}"
    + _POWER
    + "$"
)
_PLAIN = re.compile(r"(?<=[\d})])\s+(?P<unit>[A-Za-zµμ]+(?:[\s/]+[A-Za-zµμ]+)*)" + _POWER + "$")
_SHORT = {
    *("mm", "cm", "km", "in", "ft", "mi", "yd", "kg", "mg"),
    *("lb", "oz", "hr", "ml", "ms", "m", "g", "s", "h", "l"),
}
"""Plain words of one or two letters that are units; others may be variables."""
_NOT_UNITS = {
    *("pi", "sqrt", "sin", "cos", "tan", "cot", "sec", "csc"),
    *("log", "ln", "exp", "mod", "and", "or", "not", "to"),
    *("factorial", "percent", "percentage", "pct", "choose", "over", "times", "plus", "minus"),
}
_ALIASES = {
    alias: unit
    for unit, aliases in {
        "mm": "millimeter millimetre",
        "cm": "centimeter centimetre",
        "m": "meter metre",
        "km": "kilometer kilometre",
        "in": "inch inche",
        "ft": "foot feet",
        "yd": "yard",
        "mi": "mile",
        "mg": "milligram",
        "g": "gram",
        "kg": "kilogram",
        "lb": "pound",
        "oz": "ounce",
        "s": "second sec",
        "min": "minute",
        "h": "hour hr",
        "l": "liter litre",
        "ml": "milliliter millilitre",
        "deg": "degree",
    }.items()
    for alias in aliases.split()
}


def split_unit(text: str) -> tuple[str, str | None]:
    """The text before its unit, and the unit in one spelling; None without a unit."""
    if match := _DEGREE.search(text):
        return text[: match.start()], f"deg{match['scale']}"
    for sign, unit in _CURRENCY.items():
        if text.startswith(sign) or text.endswith(sign):
            return text.strip(sign).strip(), unit
    match = _IN_TEXT.search(text) or _PLAIN.search(text)
    if match is None:
        return text, None
    words = match["unit"].replace("/", " / ").split()
    scale = words.pop(0) if words and words[0].rstrip("s") in SCALES else ""
    if not words or not all(_is_unit(word, plain=match.re is _PLAIN) for word in words):
        return text, None
    return f"{text[: match.start()]} {scale}".strip(), _canonical(words, match["power"])


def _is_unit(word: str, *, plain: bool) -> bool:
    lower = word.casefold()
    if lower in _NOT_UNITS or lower.rstrip("s") in SCALES:
        return False
    return not plain or len(word) >= 3 or lower in _SHORT or word == "/"


def _canonical(words: list[str], power: str | None) -> str:
    named = {"square": "2", "sq": "2", "squared": "2", "cubic": "3", "cubed": "3"}
    parts = []
    for word in words:
        lower = word.casefold().strip(".").replace("μ", "µ")
        if lower in named:
            power = named[lower]
            continue
        single = lower if len(lower) < 3 or lower.endswith("ss") else lower.removesuffix("s")
        parts.append(_ALIASES.get(single, single))
    return " ".join(parts) + (f"^{power}" if power else "")
