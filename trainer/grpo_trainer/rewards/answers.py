r"""Whether a marked answer equals the reference.

The reference determines the comparison: a single capital is a choice letter; words are compared as
words (as mathematics they would be products of letters, and every anagram equal); numbers are
compared exactly; Math-Verify compares everything else. Raw text is never compared.
"""

import re
from functools import lru_cache

from . import symbolic
from .extraction import boxes
from .numerals import numbers_match, parse_number

MAX_ANSWER_LENGTH = 1000
"""Characters; parsing time grows steeply, and a longer text is not an answer."""

_CHARACTERS = str.maketrans({"\u2212": "-", "\u00a0": " ", "\u2009": " ", "\u202f": " "})
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
    expected, actual = parse_number(plain_reference), parse_number(plain_answer)
    if expected and actual:
        return numbers_match(expected, actual)
    return symbolic.equal(reference, answer)


def is_plain(reference: str) -> bool:
    """Whether a reference is a letter, words or a number, which need no Math-Verify."""
    if len(reference) > MAX_ANSWER_LENGTH:
        return False
    text = without_fonts(normalize(reference))
    return bool(choice_letter(text) or plain_words(text) or parse_number(text))


def is_usable(reference: str) -> bool:
    """Whether some completion can be right: the reference can be parsed, and equals itself."""
    return is_plain(reference) or matches(reference, reference)


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
