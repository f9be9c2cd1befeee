"""A task whose completions differ in length, as those of reasoning models do: few are ten times
longer.

The model's next token depends on the last one alone, so lengths are known: of sixteen completions
one is of the long kind. Learning rates are too small to change that.
"""

import math
from pathlib import Path
from typing import Any

from grpo_trainer.builtin.tokenizer import MAX_POSITIONS, VOCAB_SIZE, build_tokenizer

LONG_SHARE = 1 / 16
SHORT_TOKENS, LONG_TOKENS = 12.0, 120.0
"""Mean lengths of the two kinds."""
MAX_PROMPT_TOKENS = 16
MAX_NEW_TOKENS = MAX_POSITIONS - MAX_PROMPT_TOKENS
_IMPOSSIBLE = -20.0


def reward(completion: str, row: dict[str, Any]) -> float:
    """A reward that differs within a group."""
    return 10.0 * (len(completion) % 2)


def save_model(directory: Path) -> Path:
    """Write the model and its tokenizer."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = build_tokenizer()
    config = Qwen2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=VOCAB_SIZE,
        intermediate_size=320,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=False,
        sliding_window=None,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(VOCAB_SIZE))
        model.model.norm.weight.fill_(VOCAB_SIZE**-0.5)  # undoes the scaling of a unit vector
        model.lm_head.weight.fill_(_IMPOSSIBLE)
        for token, following in _odds(tokenizer).items():
            for successor, share in following.items():
                model.lm_head.weight[successor, token] = math.log(share)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def _odds(tokenizer: Any) -> dict[int, dict[int, float]]:
    """Token -> the tokens that follow it, with their probabilities."""
    ids = tokenizer.convert_tokens_to_ids
    begin, short, long, end = ids("<assistant>"), ids("s"), ids("l"), tokenizer.eos_token_id
    return {
        begin: {short: 1 - LONG_SHARE, long: LONG_SHARE},
        short: {short: 1 - 1 / SHORT_TOKENS, end: 1 / SHORT_TOKENS},
        long: {long: 1 - 1 / LONG_TOKENS, end: 1 / LONG_TOKENS},
    }


def overrides(model: Path) -> dict[str, dict[str, Any]]:
    """Sections of a manifest for a run of this task."""
    return {
        "model": {"path": str(model)},
        "algorithm": {"learningRate": 1e-9},
        "reward": {
            "type": "custom",
            "custom": {"module": str(Path(__file__).resolve()), "function": "reward"},
        },
        "sampling": {"maxNewTokens": MAX_NEW_TOKENS, "maxPromptTokens": MAX_PROMPT_TOKENS},
    }
