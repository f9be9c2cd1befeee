"""Decoding beyond the sliding window of an architecture, against one forward pass."""

import numpy as np
import pytest
import torch
from transformers import (
    Cohere2Config,
    Cohere2ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    MistralConfig,
    MistralForCausalLM,
)

from grpo_trainer.messages import GenerationRequest, SamplingParams
from grpo_trainer.rollout.decoding import StopCondition, decode
from unit.rollout.tiny_models import TOKENIZER

ARCHITECTURES = {
    "Cohere 2": (Cohere2Config, Cohere2ForCausalLM),
    "Gemma 2": (Gemma2Config, Gemma2ForCausalLM),
    "Gemma 3": (Gemma3TextConfig, Gemma3ForCausalLM),
    "Mistral": (MistralConfig, MistralForCausalLM),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_log_probabilities_beyond_the_window_are_those_of_a_full_forward_pass(name):
    config, architecture = ARCHITECTURES[name]
    sizes = dict.fromkeys(("hidden_size", "intermediate_size"), 32)
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
    torch.manual_seed(0)
    model = architecture._from_config(
        config(
            **sizes,
            **heads,
            vocab_size=96,
            num_hidden_layers=7,
            sliding_window=24,
            max_position_embeddings=256,
            initializer_range=0.3,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=None,
        ),
        attn_implementation="sdpa",
    ).eval()
    prompts = [np.arange(2, 2 + n, dtype=np.int32) for n in (9, 20, 40)]
    sampling = SamplingParams(1.0, None, 1.0, 32)
    requests = [GenerationRequest(str(n), p, 2, n, sampling) for n, p in enumerate(prompts)]
    found = decode(model, requests, StopCondition(frozenset(), (), TOKENIZER))
    for row in range(6):
        prompt, tokens = torch.from_numpy(prompts[row // 2]).long(), found.tokens[row]
        with torch.no_grad():
            logits = model(torch.cat([prompt, tokens])[None]).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(dim=-1).gather(1, tokens[:, None]).squeeze(1)
        torch.testing.assert_close(found.logprobs[row], expected, atol=1e-4, rtol=0)
