"""Models, layouts and tokenizers that cannot work are refused with what would.

Aspects: the table of supported layouts against ColossalAI's own; every layout of an unsupported
type; models that generate no text; padding; tokens that the model does not have.
"""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import transformers

from grpo_trainer.driver.model_support import (
    HYBRID_MODEL_TYPES,
    _check_weights,
    check_architecture,
    check_token_ids,
    padding_id,
)
from grpo_trainer.errors import InvalidInputError
from grpo_trainer.messages import Message, Prompt, Row
from grpo_trainer.spec import Backend, GRPOJobSpec

POLICIES = """
import transformers
from colossalai.shardformer.policies.auto_policy import _POLICY_LIST
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as names
classes = {path.rpartition(".")[2] for path in _POLICY_LIST if path.startswith("transformers.")}
kinds = (AutoConfig.for_model(kind).model_type for kind, name in names.items() if name in classes)
print("policies:", *sorted(set(kinds)))
"""
PAIR = {"replicas": 1, "processesPerReplica": 2}


def spec(dtype: str = "bfloat16", **consumers: Any) -> GRPOJobSpec:
    model = {"path": "org/model", "dtype": dtype}
    return GRPOJobSpec.model_validate({"model": model, "consumers": {**PAIR, **consumers}})


def test_the_library_has_a_policy_for_every_type_of_the_table() -> None:
    done = subprocess.run(
        [sys.executable, "-c", POLICIES], capture_output=True, text=True, timeout=300, check=True
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("policies:")]
    assert set(line.split()[1:]) >= HYBRID_MODEL_TYPES


@pytest.mark.parametrize(
    "consumers",
    [{}, {"tensorParallelSize": 2}, {"pipelineParallelSize": 2, "zeroStage": 1}],
)
@pytest.mark.parametrize(
    "config", [transformers.Qwen3Config(), transformers.Gemma2Config(), transformers.GPT2Config()]
)
def test_a_type_without_a_policy_is_refused_with_a_layout_that_works(config, consumers) -> None:
    with pytest.raises(InvalidInputError, match=f"for '{config.model_type}' set consumers"):
        check_architecture(spec(**consumers), config)


@pytest.mark.parametrize(
    ("dtype", "consumers"),
    [("float32", {}), ("bfloat16", {"zeroStage": 1}), ("bfloat16", {"zeroStage": 2})],
)
def test_ddp_and_zero_train_every_causal_language_model(dtype, consumers) -> None:
    check_architecture(spec(dtype, **consumers), transformers.Qwen3Config())


@pytest.mark.parametrize("consumers", [{}, {"tensorParallelSize": 2}, {"pipelineParallelSize": 2}])
def test_a_type_with_a_policy_is_supported_in_every_layout(consumers) -> None:
    check_architecture(spec(**consumers), transformers.Qwen2Config())


@pytest.mark.parametrize("consumers", [{}, {"tensorParallelSize": 2}])
def test_fsdp_trains_types_without_a_policy(consumers) -> None:
    check_architecture(spec(backend="fsdp", **consumers), transformers.Qwen3Config())


def test_fsdp_splits_only_layers_that_have_a_plan() -> None:
    split = spec(backend="fsdp", tensorParallelSize=2)
    with pytest.raises(InvalidInputError, match=r"must be 1: .* no plan .* of gpt2"):
        check_architecture(split, transformers.GPT2Config())


def test_fsdp_splits_only_into_as_many_parts_as_divide_the_heads() -> None:
    split = spec(backend="fsdp", tensorParallelSize=2)
    odd = transformers.Qwen3Config(num_attention_heads=9, num_key_value_heads=3)
    with pytest.raises(InvalidInputError, match=r"must divide the number of key-value heads .*3"):
        check_architecture(split, odd)


def test_quantized_weights_are_refused() -> None:
    config = transformers.Qwen2Config(quantization_config={"quant_method": "awq"})
    with pytest.raises(InvalidInputError, match="they are quantized"):
        check_architecture(spec(backend="fsdp"), config)


def test_gpt_oss_is_refused_with_vllm_whose_experts_ignore_updates() -> None:
    config = transformers.Qwen2Config()
    config.model_type = "gpt_oss"
    job = spec(backend="fsdp")
    vllm = job.model_copy(
        update={"producers": job.producers.model_copy(update={"backend": Backend.VLLM})}
    )
    with pytest.raises(InvalidInputError, match=r"spec\.producers\.backend: .* with gpt_oss"):
        _check_weights(vllm, config)


def test_a_model_that_generates_no_text_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"must be a causal language model .*, not 't5'"):
        check_architecture(spec("float32"), transformers.T5Config())


def tokenizer(pad: int | None, eos: int | None) -> Any:
    return SimpleNamespace(
        pad_token_id=pad,
        eos_token_id=eos,
        eos_token="</s>",
        name_or_path="org/model",
        convert_ids_to_tokens=lambda number: f"<{number}>",
    )


@pytest.mark.parametrize(
    ("pad", "eos", "expected"), [(0, 1, 0), (None, 1, 1), (128, 1, 1), (5, None, 5)]
)
def test_padding_uses_a_token_that_the_model_has(pad, eos, expected) -> None:
    assert padding_id(tokenizer(pad, eos), 128) == expected


@pytest.mark.parametrize(("pad", "eos"), [(None, None), (128, None), (200, None)])
def test_a_tokenizer_without_a_token_to_pad_with_is_refused(pad, eos) -> None:
    with pytest.raises(InvalidInputError, match="must have a pad token or an end token"):
        padding_id(tokenizer(pad, eos), 128)


def test_an_end_token_that_the_model_cannot_generate_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="end token '</s>' has the id 128"):
        padding_id(tokenizer(0, 128), 128)


def test_a_prompt_with_a_token_that_the_model_lacks_is_named() -> None:
    row = Row("data.jsonl line 7", (Message("user", "?"),), answer="1")
    prompts = [Prompt(row, np.array([1, 127], np.int32)), Prompt(row, np.array([130], np.int32))]
    with pytest.raises(InvalidInputError, match=r"data\.jsonl line 7 has the token '<130>'"):
        check_token_ids(prompts, tokenizer(0, 1), 128)
    check_token_ids(prompts[:1], tokenizer(0, 1), 128)
