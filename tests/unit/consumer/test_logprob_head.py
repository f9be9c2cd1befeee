"""The head that computes log-probabilities inside the model's forward pass.

Aspects: values, entropies and gradients are those of whole logits, in fp32 and in bfloat16, for any
chunk; models that change logits after the projection; micro-batches without response tokens; a
model with an unknown change is refused.
"""

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    GraniteConfig,
    LlamaConfig,
    Qwen2Config,
)

from grpo_trainer.algorithm import chunks
from grpo_trainer.algorithm.logprobs import sampling_distribution
from grpo_trainer.consumer.backend import DeviceBatch
from grpo_trainer.consumer.head import attach_head, response_logprobs
from grpo_trainer.errors import InvalidInputError
from support.layouts import options

VOCABULARY = 96
SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
CONFIGS = {
    "qwen2": Qwen2Config(**SIZE),
    "qwen2 tied": Qwen2Config(**SIZE, tie_word_embeddings=True),
    "llama": LlamaConfig(**SIZE),
    "gemma2 with a soft cap": Gemma2Config(**SIZE, head_dim=16, final_logit_softcapping=3.0),
    "granite with a divisor": GraniteConfig(**SIZE, logits_scaling=4.0),
    "cohere with a factor": CohereConfig(**SIZE, logit_scale=0.25),
}
CHUNKS = {"one chunk": 1 << 20, "chunks of three rows": 3 * VOCABULARY}


def build(config, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").to(dtype)


def batch(empty: bool = False) -> DeviceBatch:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, VOCABULARY, (2, 12), generator=generator)
    mask = torch.zeros(2, 12, dtype=torch.bool)
    if not empty:
        mask[0, 3:11] = True
        mask[1, 5:8] = True
    none = torch.zeros(0)
    return DeviceBatch(ids, mask, none, none)


def weight(mask: torch.Tensor) -> torch.Tensor:
    """A different factor for each token, so that a gradient of the wrong token shows."""
    return torch.linspace(-1, 2, mask.numel()).view(mask.shape)


def whole_logits(model: nn.Module, item: DeviceBatch, sampling: dict) -> tuple:
    """Log-probabilities and entropies [B, L], and the gradients: all logits at once."""
    logits = model(input_ids=item.ids).logits[:, :-1].flatten(0, 1)
    targets = item.ids[:, 1:].flatten()
    shape = item.ids[:, 1:].shape
    spread = sampling_distribution(logits, keep=targets, **sampling)
    logprobs = spread.gather(1, targets[:, None]).view(shape)
    entropy = torch.special.entr(spread.exp()).sum(-1).view(shape)
    pad, mask = nn.functional.pad, item.mask
    logprobs, entropy = (pad(x, (1, 0)) * mask for x in (logprobs, entropy.detach()))
    (logprobs * weight(mask)).sum().backward()
    return logprobs.detach(), entropy, gradients(model)


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    found = {n: p.grad.float().clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def through_the_head(model: nn.Module, item: DeviceBatch, sampling: dict) -> tuple:
    chosen = options(Path("model"), **sampling)
    head = attach_head(model, lambda ids: model(input_ids=ids).logits, chosen, VOCABULARY)
    head.expect(item)
    found = response_logprobs(model(input_ids=item.ids).logits)
    (found.logprobs * weight(item.mask)).sum().backward()
    return found.logprobs.detach(), found.entropy, gradients(model)


def worst(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    assert found.keys() == expected.keys()
    return max(float((found[n] - e).norm() / e.norm().clamp(min=1e-3)) for n, e in expected.items())


PLAIN = {"temperature": 0.8, "top_k": None, "top_p": 1.0}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("chunk", CHUNKS)
def test_values_and_gradients_are_those_of_whole_logits(monkeypatch, name, chunk):
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", CHUNKS[chunk])
    model, item = build(CONFIGS[name], torch.float32), batch()
    expected = whole_logits(model, item, PLAIN)
    found = through_the_head(model, item, PLAIN)
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=2e-6)
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=2e-5)
    assert worst(found[2], expected[2]) < 1e-5


@pytest.mark.parametrize("name", CONFIGS)
def test_in_bfloat16_they_are_within_its_noise(monkeypatch, name):
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", CHUNKS["chunks of three rows"])
    model, item = build(CONFIGS[name], torch.bfloat16), batch()
    expected = whole_logits(model, item, PLAIN)
    found = through_the_head(model, item, PLAIN)
    assert float((found[0] - expected[0]).abs().max()) < 0.05
    assert worst(found[2], expected[2]) < 0.05


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 1.0, "top_k": 5, "top_p": 1.0},
        {"temperature": 0.7, "top_k": None, "top_p": 0.6},
        {"temperature": 1.3, "top_k": 20, "top_p": 0.9},
    ],
)
def test_top_k_and_top_p_restrict_each_chunk_as_whole_logits(monkeypatch, sampling):
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", CHUNKS["chunks of three rows"])
    model, item = build(CONFIGS["qwen2"], torch.float32), batch()
    expected = whole_logits(model, item, sampling)
    found = through_the_head(model, item, sampling)
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=2e-6)
    assert worst(found[2], expected[2]) < 1e-5


def test_a_micro_batch_without_response_tokens_has_a_gradient_of_zero():
    model = build(CONFIGS["qwen2"], torch.float32)
    logprobs, _, of_model = through_the_head(model, batch(empty=True), PLAIN)
    assert not logprobs.any()
    assert of_model and not any(gradient.any() for gradient in of_model.values())


@pytest.mark.parametrize("name", CONFIGS)
def test_without_an_announced_micro_batch_the_model_returns_its_logits(name):
    model, item = build(CONFIGS[name], torch.float32), batch()
    expected = model(input_ids=item.ids).logits
    attach_head(model, lambda ids: model(input_ids=ids).logits, options(Path("m")), VOCABULARY)
    torch.testing.assert_close(model(input_ids=item.ids).logits, expected)


def test_a_model_that_changes_its_logits_in_an_unknown_way_is_refused():
    model = build(CONFIGS["qwen2"], torch.float32)
    forward = model.forward

    def doubled(**inputs):
        output = forward(**inputs)
        output.logits = output.logits * 2 if output.logits.shape[-1] > 2 else output.logits
        return output

    model.forward = doubled
    with pytest.raises(InvalidInputError, match=r"spec\.model\.path.*log-probabilities differ by"):
        attach_head(model, lambda ids: model(input_ids=ids).logits, options(Path("m")), VOCABULARY)


def test_only_one_chunk_of_logits_is_projected_at_a_time(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", CHUNKS["chunks of three rows"])
    model, item, rows = build(CONFIGS["qwen2"], torch.float32), batch(), []
    project = model.lm_head.forward

    def counted(hidden):
        rows.append(len(hidden))
        return project(hidden)

    head = attach_head(
        model, lambda ids: model(input_ids=ids).logits, options(Path("m")), VOCABULARY
    )
    head._project = counted
    head.expect(item)
    response_logprobs(model(input_ids=item.ids).logits).logprobs.sum().backward()
    assert max(rows) == 3
    assert sum(rows) == 2 * int(item.mask.sum())  # again in the backward pass
