r"""Whether a marked answer equals the reference.

The reference decides how: a single capital is a choice letter and is compared as one; words are
compared as words (as mathematics they would be products of letters, and every anagram equal);
numbers are compared exactly; all else is left to Math-Verify. There is no comparison of raw text.
"""

import re
from functools import lru_cache

from . import symbolic
from .formats import boxes
from .numerals import numbers_match, parse_number

MAX_ANSWER_LENGTH = 1000
"""Characters; parsing time grows steeply, and a longer answer is no answer."""

_CHARACTERS = str.maketrans({"\u2212": "-", "\u00a0": " ", "\u2009": " ", "\u202f": " "})
_OPENING = re.compile(r"^(?:\s|\*\*|\\?\$|\\[(\[])+")
_CLOSING = re.compile(r"(?:\s|\*\*|\\?\$|\\[)\]]|(?<!\.)\.)+$")
_FONT = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|it|sf))\s*\{([^{}]*)\}")
_LETTER = re.compile(r"\(?\s*([A-Z])\s*\)?[.:]?")
_WORDS = re.compile(r"[^\W\d_]+(?:[\s,;.'-]+[^\W\d_]+)*")


@lru_cache(maxsize=32768)
def matches(gold: str, answer: str) -> bool:
    """Whether `answer` equals the reference `gold`; may take unbounded time on towers of powers."""
    if max(len(gold), len(answer)) > MAX_ANSWER_LENGTH:
        return False
    gold, answer = normalize(gold), normalize(answer)
    if not gold or not answer:
        return False
    bare_gold, bare_answer = without_fonts(gold), without_fonts(answer)
    if letter := choice_letter(bare_gold):
        return choice_letter(bare_answer) == letter
    if words := plain_words(bare_gold):
        return plain_words(bare_answer) == words
    reference, candidate = parse_number(bare_gold), parse_number(bare_answer)
    if reference and candidate:
        return numbers_match(reference, candidate)
    return symbolic.equal(gold, answer)


def is_plain(gold: str) -> bool:
    """Whether a reference is a letter, words or a number, so that Math-Verify need not judge it."""
    if len(gold) > MAX_ANSWER_LENGTH:
        return False
    gold = without_fonts(normalize(gold))
    return bool(choice_letter(gold) or plain_words(gold) or parse_number(gold))


def is_usable(gold: str) -> bool:
    """Whether some completion can be right: the reference has a meaning, and equals itself."""
    return is_plain(gold) or matches(gold, gold)


def normalize(text: str) -> str:
    r"""The text without boxes (several are one comma-separated answer), `$`, `**`, full stop."""
    while found := boxes(text):
        text = ", ".join(found)
    text = _OPENING.sub("", text.translate(_CHARACTERS))
    return _CLOSING.sub("", text)


def without_fonts(text: str) -> str:
    r"""`B` for `\text{B}` or `\mathbf{B}`."""
    while (plain := _FONT.sub(r"\1", text)) != text:
        text = plain
    return text.strip()


def choice_letter(text: str) -> str | None:
    r"""`B` of `B`, `(B)`, `B.`; None for anything more or less."""
    match = _LETTER.fullmatch(text)
    return match.group(1) if match else None


def plain_words(text: str) -> str | None:
    """The words in lower case, None where there is anything else, or only what may be variables.

    One or two letters may be a product, unless their script knows no lower case, as variables do.
    """
    if not _WORDS.fullmatch(text):
        return None
    words = re.findall(r"[^\W\d_]+", text.casefold())
    if all(word == "and" or (len(word) < 3 and word != word.upper()) for word in words):
        return None
    return " ".join(words)
