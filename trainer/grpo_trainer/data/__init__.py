"""From a file to token ids: rows are read, checked and encoded as prompts. Nothing of torch."""

from .encoding import EncodedPrompts, encode_prompts
from .loading import load_rows
from .system import system_prompt

__all__ = ["EncodedPrompts", "encode_prompts", "load_rows", "system_prompt"]
