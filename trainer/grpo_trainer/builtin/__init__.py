"""A model and a data set that need no download. Imports torch only to build the model."""

from .addition import Split, addition_rows
from .names import is_builtin
from .recipe import CompletionFormat, OnProgress, Recipe
from .store import (
    check_model_name,
    default_cache,
    ensure_model,
    ensure_tiny_model,
    resolve_model_path,
)

__all__ = [
    "CompletionFormat",
    "OnProgress",
    "Recipe",
    "Split",
    "addition_rows",
    "check_model_name",
    "default_cache",
    "ensure_model",
    "ensure_tiny_model",
    "is_builtin",
    "resolve_model_path",
]
