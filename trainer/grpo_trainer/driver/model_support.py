"""Which models the consumers can train, and whether a tokenizer fits its model.

HybridParallelPlugin trains bfloat16 without ZeRO, and tensor and pipeline parallelism; it needs a
policy for the model type, and the table has the types whose policy works with this trainer.
TorchDDPPlugin (float32) and LowLevelZeroPlugin (ZeRO 1 and 2) train every causal language model of
transformers 4.51, FSDP every one of transformers 5, split by the plans of its classes.
"""

from collections.abc import Iterable
from typing import Any

from grpo_trainer.consumer.colossalai.plugin import PluginKind, plugin_kind
from grpo_trainer.consumer.parallel_dims import ParallelDims
from grpo_trainer.errors import InvalidInputError, invalid
from grpo_trainer.messages import Prompt
from grpo_trainer.spec import Backend, ConsumerBackend, GRPOJobSpec

_TOKENIZER = "spec.model.tokenizerPath"

HYBRID_MODEL_TYPES = frozenset({"falcon", "llama", "mistral", "mixtral", "qwen2"})
"""Types that were trained in bfloat16 and with tensor parallelism, with equal losses.

ColossalAI 0.5.0 has policies for more types; those of gpt2, cohere and opt fail.
"""


def check_architecture(spec: GRPOJobSpec, config: Any) -> None:
    """Check that the consumers' layout supports a model; `config` is that of transformers.

    Raises InvalidInputError that names the model type and a layout that works.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    path, kind = spec.model.path, config.model_type
    remote = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not remote:
        must = f"must be a causal language model of the installed transformers, not {kind!r}"
        raise InvalidInputError(invalid("spec.model.path", path, must))
    _check_weights(spec, config)
    consumers = spec.consumers
    if consumers.backend is ConsumerBackend.FSDP:
        _check_tensor_parallel(spec, config)
        return
    dims = ParallelDims(
        spec.consumer_processes,
        consumers.tensor_parallel_size,
        consumers.pipeline_parallel_size,
        consumers.zero_stage,
    )
    if plugin_kind(dims, spec.model.dtype) is not PluginKind.HYBRID or kind in HYBRID_MODEL_TYPES:
        return
    must = (
        f"must be of a model type that ColossalAI supports with {_layout_text(spec)}: "
        f"{', '.join(sorted(HYBRID_MODEL_TYPES))}; for {kind!r} set {_alternative(spec)}"
    )
    raise InvalidInputError(invalid("spec.model.path", path, must))


def _check_weights(spec: GRPOJobSpec, config: Any) -> None:
    """Raise InvalidInputError for models whose weights cannot be trained or sent to producers."""
    if getattr(config, "quantization_config", None) is not None:
        must = "must have weights in float32, float16 or bfloat16; they are quantized"
        raise InvalidInputError(invalid("spec.model.path", spec.model.path, must))
    if config.model_type == "gpt_oss" and spec.producers.backend is Backend.VLLM:
        must = "must be transformers with gpt_oss: vLLM ignores updates of its experts"
        raise InvalidInputError(invalid("spec.producers.backend", "vllm", must))


def _check_tensor_parallel(spec: GRPOJobSpec, config: Any) -> None:
    """Raise InvalidInputError where transformers cannot split the layers as FSDP consumers ask."""
    size, text = spec.consumers.tensor_parallel_size, config.get_text_config()
    field = "spec.consumers.tensorParallelSize"
    if size == 1:
        return
    if not getattr(text, "base_model_tp_plan", None):
        must = f"must be 1: transformers has no plan for tensor parallelism of {config.model_type}"
        raise InvalidInputError(invalid(field, size, must))
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    if heads % size:
        must = f"must divide the number of key-value heads of {spec.model.path} ({heads})"
        raise InvalidInputError(invalid(field, size, must))


def _layout_text(spec: GRPOJobSpec) -> str:
    consumers, parts = spec.consumers, []
    if consumers.tensor_parallel_size > 1:
        parts.append(f"consumers.tensorParallelSize {consumers.tensor_parallel_size}")
    if consumers.pipeline_parallel_size > 1:
        parts.append(f"consumers.pipelineParallelSize {consumers.pipeline_parallel_size}")
    if not parts:
        parts.append(f"model.dtype {spec.model.dtype} and consumers.zeroStage 0")
    return " and ".join(parts)


def _alternative(spec: GRPOJobSpec) -> str:
    consumers, changes = spec.consumers, []
    if consumers.tensor_parallel_size > 1:
        changes.append("consumers.tensorParallelSize: 1")
    if consumers.pipeline_parallel_size > 1:
        changes.append("consumers.pipelineParallelSize: 1")
    if consumers.zero_stage == 0:
        changes.append("consumers.zeroStage: 1 (or 2)")
    return f"{', '.join(changes)}, or consumers.backend: fsdp"


def padding_id(tokenizer: Any, vocabulary: int) -> int:
    """The token id to pad with: the tokenizer's, or its end token where the model lacks that one.

    Padding is masked in attention and loss, so any id of the embedding will do.

    Raises InvalidInputError when the model has neither, or cannot generate the end token.
    """
    end, padding = tokenizer.eos_token_id, tokenizer.pad_token_id
    if end is not None and end >= vocabulary:
        must = (
            f"must be the model's tokenizer: its end token {tokenizer.eos_token!r} has the id "
            f"{end}, and the model's vocabulary has {vocabulary} entries"
        )
        raise InvalidInputError(invalid(_TOKENIZER, tokenizer.name_or_path, must))
    for candidate in (padding, end):
        if candidate is not None and candidate < vocabulary:
            return int(candidate)
    must = f"must have a pad token or an end token with an id below {vocabulary}, the vocabulary"
    raise InvalidInputError(invalid(_TOKENIZER, tokenizer.name_or_path, must))


def check_token_ids(prompts: Iterable[Prompt], tokenizer: Any, vocabulary: int) -> None:
    """Raise InvalidInputError for the first prompt with a token that the model does not have."""
    for prompt in prompts:
        largest = int(prompt.token_ids.max(initial=0))
        if largest >= vocabulary:
            token = tokenizer.convert_ids_to_tokens(largest)
            must = (
                f"must be the model's tokenizer: the prompt of {prompt.row.source} has the token "
                f"{token!r} with the id {largest}, and the model's vocabulary has {vocabulary} "
                "entries"
            )
            raise InvalidInputError(invalid(_TOKENIZER, tokenizer.name_or_path, must))
