"""The conversation of a model: its tokenizer, and the tokens that end its turns."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from grpo_trainer.errors import InvalidInputError, invalid
from grpo_trainer.rollout.end_of_turn import end_of_turn_ids

from .conversation import ContinuationError, Conversation


def load_conversation(
    model_path: str, tokenizer_path: str, *, trust_remote_code: bool
) -> Conversation:
    """The conversation of a model and a tokenizer of this machine or the Hub."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_path, trust_remote_code=trust_remote_code)
    return conversation_of(model_path, tokenizer, trust_remote_code=trust_remote_code)


def conversation_of(model_path: str, tokenizer: Any, *, trust_remote_code: bool) -> Conversation:
    """The conversation of a model with a tokenizer that is loaded already."""
    ids = _end_ids(model_path, trust_remote_code) | end_of_turn_ids(tokenizer)
    if tokenizer.eos_token_id is not None:
        ids |= {tokenizer.eos_token_id}
    return Conversation(tokenizer, ids)


def check_conversation(
    model_path: str, tokenizer: Any, roles: tuple[str, ...], *, trust_remote_code: bool
) -> None:
    """Raise InvalidInputError unless the chat template can be continued after each role."""
    conversation = conversation_of(model_path, tokenizer, trust_remote_code=trust_remote_code)
    for role in roles:
        try:
            conversation.check(role)
        except ContinuationError as error:
            must = (
                f"must have a chat template that continues a turn with a message of role {role}: "
                f"{error}; docs/environments.md lists model families that work"
            )
            name = tokenizer.name_or_path
            raise InvalidInputError(invalid("spec.model.tokenizerPath", name, must)) from error


def _end_ids(model_path: str, trust_remote_code: bool) -> frozenset[int]:
    """The end-of-sequence tokens of the model's configuration files."""
    from transformers import AutoConfig, GenerationConfig

    config = AutoConfig.from_pretrained(model_path, trust_remote_code=trust_remote_code)
    found = [getattr(config.get_text_config(), "eos_token_id", None)]
    with suppress(OSError):  # generation_config.json is optional in a model directory
        found.append(GenerationConfig.from_pretrained(model_path).eos_token_id)
    ids: set[int] = set()
    for given in found:
        ids.update(given if isinstance(given, list) else [] if given is None else [given])
    return frozenset(ids)
