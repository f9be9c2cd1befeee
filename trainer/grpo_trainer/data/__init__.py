"""From a file to token ids: rows are read, checked and encoded as prompts. Imports no torch."""

from .encoding import EncodedPrompts, check_markers, encode_prompts, unopened_prompts
from .loading import load_rows

__all__ = [
    "EncodedPrompts",
    "check_markers",
    "encode_prompts",
    "load_rows",
    "unopened_prompts",
]
