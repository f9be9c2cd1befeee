"""Small random models and rollouts."""

from pathlib import Path

import numpy as np

from grpo_trainer.messages import (
    Completion,
    FinishReason,
    Message,
    Prompt,
    Rollout,
    Row,
    Score,
    ScoredGroup,
)


def save_random_model(
    path: Path, *, vocabulary: int = 128, layers: int = 2, tied: bool = False, seed: int = 0
) -> Path:
    """A Qwen2 of about 100,000 parameters with random weights."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        use_sliding_window=False,
        sliding_window=None,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    Qwen2ForCausalLM(config).save_pretrained(path)
    return path


def random_group(
    rng: np.random.Generator, *, completions: int = 4, vocabulary: int = 128, version: int = 0
) -> ScoredGroup:
    """A prompt with completions of random tokens, lengths, log-probabilities near uniform,
    rewards."""
    ids = rng.integers(2, vocabulary, rng.integers(3, 9)).astype(np.int32)
    sampled, scores = [], []
    for _ in range(completions):
        length = int(rng.integers(2, 12))
        sampled.append(
            Completion(
                token_ids=rng.integers(2, vocabulary, length).astype(np.int32),
                logprobs=(-np.log(vocabulary) + rng.normal(0, 0.1, length)).astype(np.float32),
                versions=np.full(length, version, dtype=np.int32),
                text="",
                finish_reason=FinishReason.STOP,
            )
        )
        right = float(rng.integers(0, 2))
        scores.append(Score(reward=10 * right, format_accuracy=1.0, accuracy=right))
    prompt = Prompt(Row("test row 1", (Message("user", "?"),), answer="1"), ids)
    return ScoredGroup(prompt, Rollout("r", tuple(sampled)), tuple(scores))
