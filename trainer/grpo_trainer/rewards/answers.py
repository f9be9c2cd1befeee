r"""Whether a marked answer equals the reference.

The reference determines the comparison: a single capital is a choice letter; words are compared as
words (as mathematics they would be products of letters, and every anagram equal); numbers are
compared exactly; Math-Verify compares everything else. Raw text is never compared.
"""

import re
import unicodedata
from functools import lru_cache

from . import symbolic
from .extraction import boxes
from .numerals import numbers_match, parse_number
from .units import split_unit

MAX_ANSWER_LENGTH = 1000
"""Characters; parsing time grows steeply, and a longer text is not an answer."""

_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("\u2212\uff0d\ufe63", "-"),
        **dict.fromkeys("\u00a0\u2009\u202f\u2007", " "),
        "\u00d7": r"\times ",
        "\u00b7": r"\cdot ",
        "\u22c5": r"\cdot ",
        "\u00f7": "/",
        "\u2044": "/",
        "\u03c0": r"\pi ",
        "\u221e": r"\infty ",
        "\u2264": r"\le ",
        "\u2265": r"\ge ",
        "\u2208": r"\in ",
        "\u222a": r"\cup ",
        "\u2019": "'",
        "\u2260": r"\ne ",
        "\u00b1": r"\pm ",
    }
)
_SUPERSCRIPTS = str.maketrans(
    "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b", "0123456789-"
)
_SUPERSCRIPT = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207b]+")
_VULGAR = re.compile(r"(\d?)([\u00bc-\u00be\u2150-\u215e])")
_SIGN = re.compile(r"^\u2013(?=\s*[\d.\\])")  # an en dash; between numbers it is a range
_ROOT = re.compile(r"\u221a\s*(\d+|[A-Za-z]|\([^()]*\))")
_NARROW_SPACE = re.compile(r"\s*(?:(?<!\\)\\[,;:!> ]|~)\s*")
_WIDE_SPACE = re.compile(
    r"(?<!\\)\\(?:q?quad|enspace|enskip|thinspace|medspace|thickspace|negthinspace|space|hfill|newline"
    r"|par|null|displaystyle|textstyle|scriptstyle)"
    r"(?![A-Za-z])|\\hspace\*?\{[^{}]*\}|\\(?:text|mbox)\{\s*\}|\\[hv]?phantom\{[^{}]*\}"
)
_OPENING = re.compile(r"^(?:\s|\*\*|\\?\$|\\[(\[])+")
_CLOSING = re.compile(r"(?:\s|\*\*|\\?\$|\\[)\]]|(?<!\.)\.)+$")
_FONT = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|it|sf))\s*\{([^{}]*)\}")
_LETTER = re.compile(r"\(?\s*([A-Z])\s*\)?[.:]?")
_WORDS = re.compile(r"[^\W\d_]+(?:[\s,;.'-]+[^\W\d_]+)*")


@lru_cache(maxsize=32768)
def matches(reference: str, answer: str) -> bool:
    """Whether `answer` equals `reference`; may take unbounded time on towers of powers."""
    if max(len(reference), len(answer)) > MAX_ANSWER_LENGTH:
        return False
    reference, answer = normalize(reference), normalize(answer)
    if not reference or not answer:
        return False
    plain_reference, plain_answer = without_fonts(reference), without_fonts(answer)
    if letter := choice_letter(plain_reference):
        return choice_letter(plain_answer) == letter
    if words := plain_words(plain_reference):
        return plain_words(plain_answer) == words
    (bare_reference, unit), (bare_answer, other) = split_unit(reference), split_unit(answer)
    if unit and other and unit != other:
        return False
    expected = parse_number(without_fonts(bare_reference))
    actual = parse_number(without_fonts(bare_answer))
    if expected and actual:
        return numbers_match(expected, actual)
    return symbolic.equal(reference, answer)


def is_plain(reference: str) -> bool:
    """Whether a reference is a letter, words or a number, which need no Math-Verify."""
    if len(reference) > MAX_ANSWER_LENGTH:
        return False
    text = normalize(reference)
    plain = without_fonts(text)
    number = parse_number(without_fonts(split_unit(text)[0]))
    return bool(choice_letter(plain) or plain_words(plain) or number)


def is_usable(reference: str) -> bool:
    """Whether some completion can be right: the reference can be parsed, and equals itself."""
    return is_plain(reference) or matches(reference, reference)


def normalize(text: str) -> str:
    r"""The text without boxes (several are one comma-separated answer), `$`, `**`, full stop."""
    while found := boxes(text):
        text = ", ".join(found)
    text = _CLOSING.sub("", _OPENING.sub("", _plain_characters(text)))
    return _WIDE_SPACE.sub("  ", text).strip()


def _plain_characters(text: str) -> str:
    """Characters of Unicode that have a spelling in LaTeX or ASCII in that spelling."""
    text = _VULGAR.sub(_vulgar, text.translate(_CHARACTERS))
    text = _SUPERSCRIPT.sub(lambda run: f"^{{{run.group().translate(_SUPERSCRIPTS)}}}", text)
    text = _ROOT.sub(r"\\sqrt{\1}", text)
    return _NARROW_SPACE.sub(" ", _SIGN.sub("-", text))


def _vulgar(match: re.Match[str]) -> str:
    fraction = unicodedata.normalize("NFKC", match[2]).replace("\u2044", "/")
    return f"{match[1]} {fraction}".lstrip()


def without_fonts(text: str) -> str:
    r"""`B` for `\text{B}` or `\mathbf{B}`."""
    while (plain := _FONT.sub(r"\1", text)) != text:
        text = plain
    return text.strip()


def choice_letter(text: str) -> str | None:
    r"""`B` of `B`, `(B)`, `B.`; None for anything else."""
    match = _LETTER.fullmatch(text)
    return match.group(1) if match else None


def plain_words(text: str) -> str | None:
    """The words in lower case; None if there is anything else, or nothing but possible variables.

    One or two letters may be a product of variables, unless their script has no lower case.
    """
    if not _WORDS.fullmatch(text):
        return None
    words = re.findall(r"[^\W\d_]+", text.casefold())
    if all(word == "and" or (len(word) < 3 and word != word.upper()) for word in words):
        return None
    return " ".join(words)
