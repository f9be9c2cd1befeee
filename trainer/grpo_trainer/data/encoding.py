"""Rows as token ids, by the tokenizer's own chat template."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jinja2
import numpy as np

from ..errors import InvalidDataError, InvalidInputError
from ..messages import Prompt, Row
from ..row_faults import RowFault, refuse, shown


class ChatTokenizer(Protocol):
    """The part of a `transformers` tokenizer that encodes a conversation."""

    name_or_path: str
    chat_template: Any

    def apply_chat_template(
        self,
        conversation: list[dict[str, str]],
        *,
        add_generation_prompt: bool,
        tokenize: bool,
        return_dict: bool,
    ) -> list[int]: ...


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPrompts:
    """The prompts that fit, in the order of their rows."""

    prompts: tuple[Prompt, ...]
    dropped: int
    """Number of rows whose prompt is over the limit."""


def encode_prompts(
    rows: Sequence[Row], tokenizer: ChatTokenizer, *, system: str, max_prompt_tokens: int
) -> EncodedPrompts:
    """Encode each row up to the point where the completion begins.

    A non-empty `system` message opens every conversation that has none of its own. Prompts of more
    than `max_prompt_tokens` tokens are dropped and counted, never truncated: a truncated prompt
    lacks the end of its question.

    Raises InvalidInputError if the tokenizer has no chat template, and InvalidDataError if the
    template refuses a row or no prompt fits.
    """
    if not tokenizer.chat_template:
        raise InvalidInputError(
            f"spec.model.tokenizerPath: Invalid value: {tokenizer.name_or_path!r}: must be a "
            "tokenizer with a chat template, such as that of an instruction-tuned model"
        )
    prompts: list[Prompt] = []
    faults: list[RowFault] = []
    for row in rows:
        try:
            prompts.append(_encode(row, tokenizer, system))
        except jinja2.TemplateError as error:
            value = shown([message.role for message in row.messages])
            requirement = f"must be a conversation that the chat template accepts ({error})"
            faults.append(RowFault(row.source, requirement, f"roles {value}"))
    if faults:
        raise refuse(faults)
    kept = tuple(p for p in prompts if len(p.token_ids) <= max_prompt_tokens)
    if not kept:
        shortest = min((len(p.token_ids) for p in prompts), default=0)
        raise InvalidDataError(
            f"spec.sampling.maxPromptTokens (-mpt): Invalid value: {max_prompt_tokens}: must be at "
            f"least {shortest}, the length of the shortest of {len(prompts)} prompts with system "
            "message and chat template"
        )
    return EncodedPrompts(kept, dropped=len(prompts) - len(kept))


def _encode(row: Row, tokenizer: ChatTokenizer, system: str) -> Prompt:
    turns = [{"role": m.role, "content": m.content} for m in row.messages]
    if system and all(m.role != "system" for m in row.messages):
        turns = [{"role": "system", "content": system}, *turns]
    ids = tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return Prompt(row, np.asarray(ids, dtype=np.int32))
