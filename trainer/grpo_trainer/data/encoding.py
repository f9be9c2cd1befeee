"""Rows as token ids, by the tokenizer's own chat template."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Protocol

import jinja2
import numpy as np

from ..errors import InvalidDataError, InvalidInputError
from ..messages import Prompt, Row
from ..row_faults import RowFault, refuse, shown

_TEMPLATE_ERRORS = (jinja2.TemplateError, TypeError, ValueError)


class ChatTokenizer(Protocol):
    """The part of a `transformers` tokenizer that encodes a conversation."""

    name_or_path: str
    chat_template: Any

    def apply_chat_template(
        self,
        conversation: list[dict[str, Any]],
        *,
        add_generation_prompt: bool,
        tokenize: bool,
        return_dict: bool,
    ) -> list[int] | str: ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str: ...


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPrompts:
    """The prompts that fit, in the order of their rows."""

    prompts: tuple[Prompt, ...]
    dropped: int
    """Number of rows whose prompt is over the limit."""


def encode_prompts(
    rows: Sequence[Row],
    tokenizer: ChatTokenizer,
    *,
    system: str,
    max_prompt_tokens: int,
    render: bool = False,
) -> EncodedPrompts:
    """Encode each row up to the point where the completion begins, and note how it begins.

    A non-empty `system` message opens every conversation that has none of its own. Prompts of more
    than `max_prompt_tokens` tokens are dropped and counted, never truncated: a truncated prompt
    lacks the end of its question. With `render` each row keeps its prompt as text.

    Raises InvalidInputError if the tokenizer has no chat template or its template refuses system
    messages, and InvalidDataError if it refuses a row or loses tool calls, or no prompt fits.
    """
    _check_template(tokenizer)
    prompts: list[Prompt] = []
    faults: list[RowFault] = []
    prefix = ""
    for row in rows:
        turns = _turns(row, system)
        try:
            ids = _apply(tokenizer, turns, tokenize=True)
            prefix = prefix or _generation_prompt(tokenizer, turns)
            if requirement := _lost_calls(tokenizer, turns):
                faults.append(RowFault(row.source, requirement, "tool_calls"))
        except _TEMPLATE_ERRORS as error:
            if len(turns) > len(row.messages):
                _check_system_role(tokenizer, row, error)
            value = shown([turn["role"] for turn in turns])
            requirement = f"must be a conversation that the chat template accepts ({error})"
            faults.append(RowFault(row.source, requirement, f"roles {value}"))
            continue
        text = str(_apply(tokenizer, turns, tokenize=False)) if render else ""
        encoded = replace(row, prefix=prefix, rendered=text)
        prompts.append(Prompt(encoded, np.asarray(ids, dtype=np.int32)))
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


def unopened_prompts(rows: Sequence[Row]) -> EncodedPrompts:
    """The rows without token ids, where an environment opens their conversations."""
    nothing = np.empty(0, dtype=np.int32)
    return EncodedPrompts(tuple(Prompt(row, nothing) for row in rows), dropped=0)


def check_markers(tokenizer: ChatTokenizer, markers: Iterable[str]) -> None:
    """Raise InvalidInputError if decoding a completion loses texts that the reward reads."""
    for marker in markers:
        ids = tokenizer.encode(marker, add_special_tokens=False)
        if marker not in tokenizer.decode(ids, skip_special_tokens=True):
            raise InvalidInputError(
                f"spec.model.tokenizerPath: Invalid value: {tokenizer.name_or_path!r}: must decode "
                f"{marker!r}, which the reward reads: add it as a token that is not special"
            )


def _check_template(tokenizer: ChatTokenizer) -> None:
    if not tokenizer.chat_template:
        raise InvalidInputError(
            f"spec.model.tokenizerPath: Invalid value: {tokenizer.name_or_path!r}: must be a "
            "tokenizer with a chat template, such as that of an instruction-tuned model"
        )


def _check_system_role(tokenizer: ChatTokenizer, row: Row, error: Exception) -> None:
    """Raise InvalidInputError if the row is accepted without the system message of the spec."""
    try:
        _apply(tokenizer, _turns(row, ""), tokenize=True)
    except _TEMPLATE_ERRORS:
        return
    raise InvalidInputError(
        f"spec.reward.systemPrompt: Invalid value: the chat template of {tokenizer.name_or_path!r} "
        f'refuses system messages ({error}): must be ""; put instructions into the questions'
    ) from error


def _turns(row: Row, system: str) -> list[dict[str, Any]]:
    turns = [{"role": m.role, "content": m.content, **m.extra} for m in row.messages]
    if system and all(m.role != "system" for m in row.messages):
        return [{"role": "system", "content": system}, *turns]
    return turns


def _generation_prompt(tokenizer: ChatTokenizer, turns: list[dict[str, Any]]) -> str:
    """What the template adds to a conversation where the completion begins."""
    opened = str(_apply(tokenizer, turns, tokenize=False))
    closed = str(_apply(tokenizer, turns, tokenize=False, add_generation_prompt=False))
    common = takewhile(lambda pair: pair[0] == pair[1], zip(opened, closed, strict=False))
    return opened[sum(1 for _ in common) :]


def _lost_calls(tokenizer: ChatTokenizer, turns: list[dict[str, Any]]) -> str:
    if all("tool_calls" not in turn for turn in turns):
        return ""
    without = [{key: turn[key] for key in turn if key != "tool_calls"} for turn in turns]
    if _apply(tokenizer, turns, tokenize=False) != _apply(tokenizer, without, tokenize=False):
        return ""
    return "must be absent: the chat template does not render it"


def _apply(
    tokenizer: ChatTokenizer,
    turns: list[dict[str, Any]],
    *,
    tokenize: bool,
    add_generation_prompt: bool = True,
) -> Any:
    return tokenizer.apply_chat_template(
        turns,
        add_generation_prompt=add_generation_prompt,
        tokenize=tokenize,
        return_dict=False,
    )
