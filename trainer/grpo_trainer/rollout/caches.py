"""The cache of keys and values that decoding needs, by what a model's attention expects."""

from typing import Any

from torch import Tensor
from transformers import DynamicCache, PreTrainedModel


class SlidingCache(DynamicCache):
    """Returns what the sliding layers of a model with a hybrid cache attend to.

    Beyond their window these layers (Gemma 2 and 3, Cohere 2) cut the mask to the keys that
    transformers' HybridCache keeps. That cache has a fixed batch, which cannot lose finished rows.
    """

    def __init__(self, window: int, sliding: list[bool]) -> None:
        """`sliding` has an entry for each layer."""
        super().__init__()
        self._window = window
        self._sliding = sliding

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        cache_kwargs: dict[str, Any] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Add [P, heads, n, size]; returns the keys and values of all tokens, or of the window."""
        keys, values = super().update(key_states, value_states, layer_idx, cache_kwargs)
        if not self._sliding[layer_idx]:
            return keys, values
        seen = max(self._window, key_states.shape[-2])
        return keys[..., -seen:, :], values[..., -seen:, :]


def create_cache(model: PreTrainedModel) -> DynamicCache:
    """An empty cache, whose rows can be selected."""
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    if getattr(config, "cache_implementation", None) != "hybrid" or window is None:
        return DynamicCache()
    layers = [layer for layer in model.modules() if hasattr(layer, "self_attn")]
    return SlidingCache(window, [layer.is_sliding for layer in layers])
