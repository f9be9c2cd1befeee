"""The text of single tokens."""

from functools import lru_cache
from typing import Protocol

from grpo_trainer.messages import Ints

_DISTINCT = 1 << 17


class Decoder(Protocol):
    """The part of a tokenizer that turns token ids into text."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str: ...


class TokenTexts:
    """Decodes tokens one by one, each distinct one once.

    A token is decoded behind another, as some tokenizers drop the space before the first. Bytes of
    a character that several tokens share become replacement characters.
    """

    def __init__(self, tokenizer: Decoder) -> None:
        self._tokenizer = tokenizer
        self._before = tokenizer.encode("a", add_special_tokens=False)[-1:]
        self._known = len(self._text([]))
        self._of = lru_cache(_DISTINCT)(self._piece)

    def __call__(self, token_ids: Ints) -> list[str]:
        return [self._of(int(token)) for token in token_ids]

    def _piece(self, token: int) -> str:
        return self._text([token])[self._known :]

    def _text(self, token_ids: list[int]) -> str:
        return self._tokenizer.decode([*self._before, *token_ids], skip_special_tokens=False)
