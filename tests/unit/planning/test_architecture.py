"""Parameters counted from a configuration, against models that transformers builds from it."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.planning.architecture import architecture, read_architecture

SIZES = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
MODELS = {
    "llama": {},
    "llama with biases": {"attention_bias": True},
    "mistral": {},
    "phi3": {},
    "qwen2": {"tie_word_embeddings": False},
    "qwen2 tied": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 32, "tie_word_embeddings": False},
    "gemma": {"head_dim": 32},
    "gemma2": {"head_dim": 32},
    "gemma3_text": {"head_dim": 32},
    "olmo2": {"tie_word_embeddings": False},
    "mixtral": EXPERTS,
    "qwen3_moe": {"head_dim": 32, "moe_intermediate_size": 48, **EXPERTS},
}


@pytest.mark.parametrize("name", MODELS)
def test_the_parameters_are_those_of_the_model(name):
    config = AutoConfig.for_model(name.split()[0], **{**SIZES, **MODELS[name]})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    counted = sum(p.numel() for p in model.parameters())
    assert architecture(config.to_dict(), name).parameters == counted


def test_qwen_of_7b_has_its_published_size(qwen_7b):
    assert qwen_7b.parameters == 7_615_616_512


def test_an_unknown_model_type_is_an_error_that_lists_the_known_ones():
    with pytest.raises(InvalidInputError) as caught:
        architecture({"model_type": "mamba"}, "acme/mamba")
    (fault,) = caught.value.faults
    assert fault.startswith(
        "spec.model.path: Invalid value: \"acme/mamba\": its model type 'mamba' has no memory "
    )
    assert "llama" in fault and "qwen3_moe" in fault


def test_a_configuration_without_sizes_is_an_error():
    with pytest.raises(InvalidInputError, match=r"its config\.json lacks 'hidden_size'"):
        architecture({"model_type": "llama"}, "acme/llama")


def test_a_directory_without_a_configuration_is_an_error(tmp_path):
    with pytest.raises(InvalidInputError, match=r"spec\.model\.path: .* readable config\.json"):
        read_architecture(tmp_path, str(tmp_path))
