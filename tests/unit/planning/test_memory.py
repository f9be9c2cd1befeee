"""Bytes of consumers, producers and the volume: by hand for Qwen2.5-7B, and measured on a small
model of torch."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from grpo_trainer.planning.architecture import architecture
from grpo_trainer.planning.consumers import (
    CUDA_BYTES,
    TrainingLayout,
    consumer_memory,
    layer_activations,
)
from grpo_trainer.planning.producers import (
    GenerationLayout,
    concurrent_sequences,
    producer_memory,
)
from grpo_trainer.planning.volume import checkpoint_bytes, loading_bytes, volume_bytes

N = 7_615_616_512
"""Parameters of Qwen2.5-7B."""
TWO_RANKS = TrainingLayout(
    processes=2,
    tensor_parallel=1,
    pipeline_parallel=1,
    zero_stage=0,
    weight_bytes=2,
    gradient_checkpointing=True,
    reference=True,
    microbatch_tokens=8192,
)
GENERATION = GenerationLayout(
    tensor_parallel=1, weight_bytes=2, tokens=4096, completions=64, paged=False
)


def test_without_zero_a_rank_holds_the_whole_state(qwen_7b):
    memory = consumer_memory(qwen_7b, TWO_RANKS)
    assert (memory.weights, memory.gradients, memory.reference) == (2 * N, 2 * N, 2 * N)
    assert (memory.masters, memory.moments, memory.update) == (4 * N, 8 * N, 4 * N)
    # 2 x 4,096 tokens: 28 layer inputs of 3,584 bf16 values, and one layer computed again.
    layer = 2 * 8 * 3584 + 2 * 2 * 3584 + 4 * 2 * 28 * 128 + 4 * 2 * 18944
    assert memory.activations == 8192 * (28 * 3584 * 2 + layer)
    # 441 rows of logits, in bf16 and four times in fp32; two bf16 gradients of the projection.
    assert memory.logits == 152_064 * (441 * (2 + 4 * 4) + 2 * 3584 * 2)
    assert memory.peak == 18 * N + CUDA_BYTES + 4 * N


@pytest.mark.parametrize(("stage", "gradients"), [(1, 2 * N), (2, N)])
def test_zero_divides_the_optimizer_state_and_stage_2_the_gradients(qwen_7b, stage, gradients):
    memory = consumer_memory(qwen_7b, replace(TWO_RANKS, zero_stage=stage))
    assert (memory.masters, memory.moments, memory.update) == (2 * N, 4 * N, 2 * N)
    assert (memory.weights, memory.gradients) == (2 * N, gradients)


def test_fsdp_divides_all_but_the_gradients_and_gathers_two_layers(qwen_7b):
    memory = consumer_memory(qwen_7b, replace(TWO_RANKS, sharded=True))
    assert (memory.weights, memory.moments, memory.reference) == (2 * N, 4 * N, N)
    assert (memory.masters, memory.update) == (0, 0)
    assert memory.gradients == 4 * N
    layer = 2 * 3584 * (3584 + 512) + 3 * 3584 * 18944 + 3584 + 2 * 512 + 2 * 3584
    assert memory.buckets == 2 * (2 * 152_064 * 3584 + 3584 + 2 * layer)


def test_tensor_parallelism_divides_matrices_but_not_norms(qwen_7b):
    matrices = 2 * 3584 * (3584 + 512) + 3 * 3584 * 18944 + 3584 + 2 * 512
    rank = 28 * (matrices // 2 + 2 * 3584) + 152_064 * 3584 // 2 * 2 + 3584
    memory = consumer_memory(qwen_7b, replace(TWO_RANKS, tensor_parallel=2))
    assert rank == 3_807_910_400
    assert (memory.weights, memory.masters) == (2 * rank, 4 * rank)
    # A chunk of logits is gathered, the projection is not.
    assert memory.logits == 152_064 * (441 * (2 + 4 * 4) + 3584 * 2)


def test_the_largest_pipeline_stage_has_half_of_the_layers_and_one_embedding(qwen_7b):
    layer = 2 * 3584 * (3584 + 512) + 3 * 3584 * 18944 + 3584 + 2 * 512 + 2 * 3584
    memory = consumer_memory(qwen_7b, replace(TWO_RANKS, pipeline_parallel=2))
    assert memory.weights == 2 * (14 * layer + 152_064 * 3584 + 3584)


def test_without_checkpointing_every_layer_keeps_its_activations(qwen_7b):
    layer = 2 * 8 * 3584 + 2 * 2 * 3584 + 4 * 2 * 28 * 128 + 4 * 2 * 18944
    memory = consumer_memory(qwen_7b, replace(TWO_RANKS, gradient_checkpointing=False))
    assert memory.activations == 8192 * 28 * layer


def test_without_a_kl_term_no_reference_is_held(qwen_7b):
    assert consumer_memory(qwen_7b, replace(TWO_RANKS, reference=False)).reference == 0


def test_a_transformers_producer_holds_the_cache_of_its_whole_batch(qwen_7b):
    memory = producer_memory(qwen_7b, GENERATION)
    assert memory.kv_cache == 64 * 4096 * (2 * 28 * 4 * 128 * 2)
    assert memory.peak == 2 * N + memory.kv_cache + CUDA_BYTES


def test_a_vllm_producer_needs_room_for_one_sequence_and_fills_the_rest(qwen_7b):
    paged = replace(GENERATION, paged=True)
    memory = producer_memory(qwen_7b, paged)
    assert memory.kv_cache == 4096 * (2 * 28 * 4 * 128 * 2)
    accelerator = 80 << 30
    free = 0.9 * accelerator - 2 * N - CUDA_BYTES
    assert concurrent_sequences(qwen_7b, paged, accelerator) == int(free // memory.kv_cache)


def test_a_checkpoint_contains_the_state_of_every_rank(qwen_7b):
    assert checkpoint_bytes(qwen_7b, TWO_RANKS) == 2 * N + 2 * 12 * N
    assert checkpoint_bytes(qwen_7b, replace(TWO_RANKS, zero_stage=1)) == 2 * N + 12 * N
    assert volume_bytes(100, keep_last=3) == 400
    assert loading_bytes(qwen_7b, 2) == 2 * 4 * N


def small_model(dtype: torch.dtype, layers: int) -> tuple[torch.nn.Module, TrainingLayout, object]:
    config = Qwen2Config(
        vocab_size=64,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=2,
        tie_word_embeddings=False,
        sliding_window=None,
        pad_token_id=0,
        use_cache=False,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(dtype).train()
    layout = replace(TWO_RANKS, processes=1, weight_bytes=model.dtype.itemsize, reference=False)
    return model, layout, architecture(config.to_dict(), "small")


def size(tensors) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def test_weights_gradients_and_moments_are_those_that_torch_allocates():
    model, layout, shape = small_model(torch.float32, layers=2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(input_ids=torch.ones(1, 8, dtype=torch.long)).logits.sum().backward()
    optimizer.step()
    forecast = consumer_memory(shape, layout, on_gpu=False)
    assert size(model.parameters()) == forecast.weights
    assert size(p.grad for p in model.parameters()) == forecast.gradients
    states = optimizer.state.values()
    moments = [state[name] for state in states for name in ("exp_avg", "exp_avg_sq")]
    assert size(moments) == forecast.moments
    assert forecast.masters == 0


def kept_for_backward(dtype: torch.dtype, layers: int, tokens: int, *, checkpoint: bool) -> int:
    """Bytes that autograd keeps of a forward pass, weights excluded."""
    model, _, _ = small_model(dtype, layers)
    if checkpoint:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(input_ids=torch.ones(1, tokens, dtype=torch.long))
    return sum(t.untyped_storage().nbytes() for at, t in kept.items() if at not in weights)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_layer_keeps_what_autograd_keeps_within_5_percent(dtype):
    tokens = 256
    two, four = (kept_for_backward(dtype, n, tokens, checkpoint=False) for n in (2, 4))
    _, layout, shape = small_model(dtype, layers=2)
    measured = (four - two) / 2 / tokens
    assert layer_activations(shape, layout.weight_bytes) == pytest.approx(measured, rel=0.05)


def test_a_checkpointed_layer_keeps_its_input_only():
    tokens = 256
    two, four = (kept_for_backward(torch.bfloat16, n, tokens, checkpoint=True) for n in (2, 4))
    assert (four - two) / 2 == tokens * 256 * 2
