"""Rows as token ids, by the tokenizer's own chat template."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jinja2
import numpy as np

from ..errors import InvalidDataError, InvalidInputError
from ..messages import Prompt, Row
from .faults import Fault, refuse


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
    """Rows whose prompt is over the limit."""


def encode_prompts(
    rows: Sequence[Row], tokenizer: ChatTokenizer, *, system: str, max_prompt_tokens: int
) -> EncodedPrompts:
    """Encode each row up to the point where the completion begins.

    A non-empty `system` message opens every conversation that has none of its own. Prompts of more
    than `max_prompt_tokens` tokens are dropped and counted, never cut: a cut prompt has lost the
    end of its question.

    Raises InvalidInputError when the tokenizer has no chat template, and InvalidDataError when the
    template refuses a row or no prompt fits.
    """
    if not tokenizer.chat_template:
        raise InvalidInputError(
            f"tokenizer {tokenizer.name_or_path!r} has no chat template; legal: an "
            "instruction-tuned model, or a tokenizerPath whose tokenizer has one"
        )
    prompts: list[Prompt] = []
    faults: list[Fault] = []
    for row in rows:
        try:
            prompts.append(_encode(row, tokenizer, system))
        except jinja2.TemplateError as error:
            faults.append(Fault(row.source, f"{error}", "a conversation the chat template takes"))
    if faults:
        raise refuse(faults)
    kept = tuple(p for p in prompts if len(p.token_ids) <= max_prompt_tokens)
    if not kept:
        shortest = min((len(p.token_ids) for p in prompts), default=0)
        raise InvalidDataError(
            f"no prompt of {len(prompts)} rows fits maxPromptTokens {max_prompt_tokens}; the "
            f"shortest has {shortest} tokens, system message and chat template included"
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
