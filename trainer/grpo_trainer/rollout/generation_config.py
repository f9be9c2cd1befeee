"""The generation configuration of a model, which not every model has."""

from pathlib import Path
from typing import Any

NAME = "generation_config.json"


def read_generation_config(source: str) -> Any | None:
    """The GenerationConfig of a directory or Hub id; None for a model without one.

    Offline, a model without one in the cache counts as without one.

    Raises:
        OSError: the file cannot be read, or the Hub did not answer whether there is one.
    """
    from huggingface_hub import _CACHED_NO_EXIST, try_to_load_from_cache
    from transformers import GenerationConfig
    from transformers.utils import TRANSFORMERS_CACHE, is_offline_mode

    if Path(source).is_dir() and not (Path(source) / NAME).is_file():
        return None
    try:
        return GenerationConfig.from_pretrained(source)
    except OSError:
        if Path(source).is_dir():
            raise
        cached = try_to_load_from_cache(source, NAME, cache_dir=TRANSFORMERS_CACHE)
        if cached is _CACHED_NO_EXIST or (cached is None and is_offline_mode()):
            return None
        raise
