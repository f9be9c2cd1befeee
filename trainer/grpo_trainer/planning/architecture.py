"""Parameters of a decoder-only transformer, counted from its `config.json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InvalidInputError, invalid


@dataclass(frozen=True, slots=True)
class _Family:
    """What a model family has in common beyond its configuration."""

    qkv_bias: bool = False
    norms: int = 2
    """Norms of the hidden size per layer."""
    head_norms: bool = False
    """Norms of queries and keys, over one head."""
    wide_head_norms: bool = False
    """Norms of queries and keys, over all heads."""
    tied: bool = False
    """Default of tie_word_embeddings."""


_FAMILIES: Mapping[str, _Family] = {
    "llama": _Family(),
    "mistral": _Family(),
    "mixtral": _Family(),
    "phi3": _Family(),
    "smollm3": _Family(tied=True),
    "qwen2": _Family(qkv_bias=True),
    "qwen3": _Family(head_norms=True),
    "qwen3_moe": _Family(head_norms=True),
    "gemma": _Family(tied=True),
    "gemma2": _Family(norms=4, tied=True),
    "gemma3_text": _Family(norms=4, head_norms=True, tied=True),
    "olmo2": _Family(wide_head_norms=True),
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """Sizes of a model with gated feed-forward layers."""

    model_type: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    """Of all experts that process one token."""
    vocabulary: int
    embedding: int
    """Parameters of the input embedding."""
    head: int
    """Parameters of the output projection; 0 when it shares the embedding."""
    layer_matrices: int
    """Parameters of one layer that tensor parallelism splits."""
    layer_vectors: int
    """Parameters of one layer that each tensor-parallel rank holds whole: norms."""

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        layers = self.layers * (self.layer_matrices + self.layer_vectors)
        return self.embedding + layers + self.hidden + self.head

    def stage_parameters(self, tensor_parallel: int, pipeline_parallel: int) -> int:
        """Parameters of the largest rank of a layout.

        The first pipeline stage has the embedding, the last one the head and the final norm; the
        last one needs the embedding too when it is tied.
        """
        layers = -(-self.layers // pipeline_parallel)
        body = layers * (-(-self.layer_matrices // tensor_parallel) + self.layer_vectors)
        first = -(-self.embedding // tensor_parallel)
        last = -(-(self.head or self.embedding) // tensor_parallel) + self.hidden
        if pipeline_parallel == 1:
            return body + first + (last if self.head else self.hidden)
        return body + max(first, last)


def read_architecture(directory: Path, path: str) -> Architecture:
    """The architecture of the `config.json` in a directory; `path` is the field's value.

    Raises InvalidInputError when there is none, or for a model type without a forecast.
    """
    file = directory / "config.json"
    try:
        config = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        must = f"must be a model with a readable config.json: {error}"
        raise InvalidInputError(invalid("spec.model.path", path, must)) from error
    return architecture(config, path)


def architecture(config: Mapping[str, Any], path: str) -> Architecture:
    """The architecture of a configuration. Raises InvalidInputError as `read_architecture`."""
    config = {**config, **config.get("text_config", {})}
    family = _FAMILIES.get(str(config.get("model_type")))
    if family is None:
        must = (
            f"its model type {config.get('model_type')!r} has no memory forecast; "
            f"must be one of {', '.join(sorted(_FAMILIES))}"
        )
        raise InvalidInputError(invalid("spec.model.path", path, must))
    try:
        return _architecture(config, family)
    except KeyError as error:
        must = f"its config.json lacks {error}"
        raise InvalidInputError(invalid("spec.model.path", path, must)) from error


def _architecture(config: Mapping[str, Any], family: _Family) -> Architecture:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    size = config.get("head_dim") or hidden // heads
    queries, keys = heads * size, kv_heads * size
    vocabulary = config["vocab_size"]
    tied = config.get("tie_word_embeddings", family.tied)
    experts = config.get("num_experts") or config.get("num_local_experts") or 1
    active = config.get("num_experts_per_tok", 1) if experts > 1 else 1
    width = config.get("moe_intermediate_size") if experts > 1 else None
    width = width or config["intermediate_size"]
    matrices = 2 * hidden * (queries + keys) + experts * 3 * hidden * width
    if experts > 1:
        matrices += hidden * experts  # the router
    if config.get("attention_bias", family.qkv_bias):
        matrices += queries + 2 * keys
    if config.get("attention_bias", False):
        matrices += hidden
    vectors = family.norms * hidden
    if family.head_norms:
        vectors += 2 * size
    if family.wide_head_norms:
        vectors += queries + keys
    return Architecture(
        model_type=str(config["model_type"]),
        layers=config["num_hidden_layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=size,
        intermediate=width * active,
        vocabulary=vocabulary,
        embedding=vocabulary * hidden,
        head=0 if tied else vocabulary * hidden,
        layer_matrices=matrices,
        layer_vectors=vectors,
    )
