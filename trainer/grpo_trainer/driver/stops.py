"""What ends a completion, beside the model's own end-of-sequence tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grpo_trainer.errors import InvalidInputError, invalid


@dataclass(frozen=True, slots=True)
class Stops:
    """Texts and tokens that end a completion."""

    strings: tuple[str, ...]
    token_ids: tuple[int, ...]
    """Ascending."""


def find_stops(
    strings: Sequence[str], token_ids: Sequence[int], tokenizer: Any, vocabulary: int
) -> Stops:
    """Stop strings that are a special token become that token: engines decode without them.

    Raises InvalidInputError for a token that the model, with a vocabulary of that many entries,
    cannot generate.
    """
    special = dict(zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True))
    for index, token in enumerate(token_ids):
        if token >= vocabulary:
            must = f"must be less than {vocabulary}, the entries of the model's vocabulary"
            field = f"spec.sampling.stopTokenIds[{index}]"
            raise InvalidInputError(invalid(field, token, must))
    found = {special[text] for text in strings if special.get(text, vocabulary) < vocabulary}
    return Stops(
        tuple(text for text in strings if special.get(text) not in found),
        tuple(sorted(found.union(token_ids))),
    )
