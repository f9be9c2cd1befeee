"""The token with which a chat template ends an assistant's turn."""

from __future__ import annotations

from typing import Any

import jinja2

_CONTENT = "content"


def end_of_turn_ids(tokenizer: Any) -> frozenset[int]:
    """The added token that directly follows the content of a rendered assistant turn, if any.

    The end-of-sequence token of many base models is not the one that their chat template ends a
    turn with (`<|endoftext|>` and `<|im_end|>`): without the latter, a completion continues into
    turns of its own invention. White space before the token is ignored.
    """
    if not tokenizer.chat_template:
        return frozenset()
    turns = [
        {"role": "user", "content": "prompt"},
        {"role": "assistant", "content": _CONTENT},
    ]
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=False)
    except jinja2.TemplateError:
        return frozenset()  # a template of prompts only: it defines no end of a turn
    _, found, tail = text.rpartition(_CONTENT)
    ids = tokenizer.encode(tail.lstrip(), add_special_tokens=False) if found else []
    return frozenset(ids[:1]) & frozenset(tokenizer.get_added_vocab().values())
