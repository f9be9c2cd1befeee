"""From a file to token ids: rows are read, checked and encoded as prompts. Imports no torch."""

from .encoding import EncodedPrompts, encode_prompts
from .loading import load_rows

__all__ = ["EncodedPrompts", "encode_prompts", "load_rows"]
