"""Lengths in tokens, and the limit that they suggest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..data import encode_prompts
from ..data.encoding import ChatTokenizer
from ..messages import Row

_UNLIMITED = 1 << 30
_MULTIPLE = 64
_QUANTILE = 0.99
_FAR = 1.5
"""A longest prompt of more than so many times the quantile does not set the limit."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Sorted numbers of tokens."""

    tokens: tuple[int, ...]

    def quantile(self, share: float) -> int:
        """The least length that at least this share of the texts does not exceed."""
        return self.tokens[max(0, math.ceil(share * len(self.tokens)) - 1)]

    def within(self, limit: int) -> int:
        """How many are not longer."""
        return sum(length <= limit for length in self.tokens)

    @property
    def proposal(self) -> int:
        """A limit: the longest length, or the quantile if few are far longer; rounded up."""
        usual = self.quantile(_QUANTILE)
        longest = self.tokens[-1]
        limit = longest if longest <= _FAR * usual else usual
        return math.ceil(limit / _MULTIPLE) * _MULTIPLE


def measure(rows: Sequence[Row], tokenizer: ChatTokenizer, system: str) -> Lengths:
    """Lengths of the prompts, with system message and chat template.

    Raises InvalidInputError for a template or a row that cannot be encoded.
    """
    encoded = encode_prompts(rows, tokenizer, system=system, max_prompt_tokens=_UNLIMITED)
    return Lengths(tuple(sorted(len(prompt.token_ids) for prompt in encoded.prompts)))
