"""Updates of stacked experts, which vLLM packs for its kernels on a CPU."""

import dataclasses

import numpy as np
import pytest
import ray
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from grpo_trainer.builtin.tokenizer import VOCAB_SIZE
from grpo_trainer.environment import vllm_python
from support.engines import PROMPTS
from support.producers import SECONDS, ask, load, start_producer, trained_logprobs
from unit.rollout.tiny_models import EOS, options, request, save_directory


def experts_model(seed):
    config = Qwen3MoeConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=128,
        intermediate_size=256,
        moe_intermediate_size=64,
        num_experts=8,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=512,
        initializer_range=0.08,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=EOS,
    )
    torch.manual_seed(seed)
    return Qwen3MoeForCausalLM(config).eval()


@pytest.fixture
def producer(cluster, tmp_path):
    save_directory(experts_model(0), tmp_path)
    actor = start_producer(vllm_python(), dataclasses.replace(options(tmp_path), max_tokens=256))
    ray.get(actor.ready.remote(), timeout=2 * SECONDS)
    yield actor
    ray.kill(actor)


async def test_each_update_of_experts_is_computed_with(producer):
    for version in range(2):
        model = experts_model(version)
        load(producer, model, version)
        requests = [
            request(prompt, 2, seed=version, request_id=f"{version}-{i}")
            for i, prompt in enumerate(PROMPTS)
        ]
        for asked, rollout in zip(requests, await ask(producer, requests), strict=True):
            for completion in rollout.completions:
                expected = trained_logprobs(model, asked, completion)
                assert np.abs(completion.logprobs - expected).max() < 1e-4
