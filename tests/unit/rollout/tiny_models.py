"""Model directories made on the spot, and weights as they come from a trainer."""

import dataclasses
from itertools import pairwise

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from grpo_trainer.builtin.tokenizer import VOCAB_SIZE, build_tokenizer
from grpo_trainer.messages import GenerationRequest, SamplingParams
from grpo_trainer.rollout.engine import EngineOptions
from grpo_trainer.weights import WeightBundle, buffer_bytes, layout

TOKENIZER = build_tokenizer()
EOS = TOKENIZER.eos_token_id


def tiny_model(tied=False, seed=0):
    """A random model, decided enough for its distributions to be far from uniform."""
    config = Qwen2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=VOCAB_SIZE,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.08,
        tie_word_embeddings=tied,
        sliding_window=None,
        bos_token_id=None,
        eos_token_id=EOS,
    )
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(config).eval()


def chain_model(successors, sharpness=10.0):
    """A model whose next token depends on the last one alone: `successors` by token id, else EOS.

    Attention and feed-forward layers add nothing; embeddings are unit vectors, and the head maps
    each to its successor.
    """
    model = tiny_model()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(VOCAB_SIZE))
        model.lm_head.weight.zero_()
        for token in range(VOCAB_SIZE):
            model.lm_head.weight[successors.get(token, EOS), token] = sharpness
    return model


def text_chain(text, end=EOS):
    """Successors that write `text`, of distinct characters, and then `end`."""
    ids = [*token_ids(text), end]
    return dict(pairwise(ids))


def token_ids(text):
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


def bundle(model, version=0, keep=lambda name: True):
    """The model's parameters as a read-only bundle, as one mapped from an object store is."""
    parameters = {n: p.detach() for n, p in model.named_parameters() if keep(n)}
    entries = layout(
        (name, str(p.dtype).removeprefix("torch."), tuple(p.shape), p.numel() * p.element_size())
        for name, p in parameters.items()
    )
    data = np.zeros(buffer_bytes(entries), np.uint8)
    for entry in entries:
        raw = parameters[entry.name].contiguous().view(torch.uint8).numpy().ravel()
        data[entry.offset : entry.offset + entry.size] = raw
    data.setflags(write=False)
    return WeightBundle(version, entries, data)


def misfits(whole):
    """What a loader has to refuse, by the word that its error has: bundles made of a good one."""
    first, *rest = whole.entries
    other = dataclasses.replace(first, name="model.other")
    bent = dataclasses.replace(first, shape=(*first.shape, 1))
    return {
        "missing": [dataclasses.replace(whole, entries=tuple(rest))],
        "unknown": [dataclasses.replace(whole, entries=(*whole.entries, other))],
        "wrong shape": [dataclasses.replace(whole, entries=(bent, *rest))],
        "one version": [whole, dataclasses.replace(whole, version=whole.version + 1)],
    }


def save_directory(model, directory, tokenizer=TOKENIZER, generation_config=None):
    """What an engine reads of a model: configuration and tokenizer, and no weights."""
    model.config.architectures = [type(model).__name__]  # vLLM guesses it where absent
    model.config.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    if generation_config is not None:
        generation_config.save_pretrained(directory)
    return str(directory)


def options(directory, microbatch=8, dtype="float32"):
    return EngineOptions(str(directory), str(directory), dtype, "cpu", microbatch)


def request(prompt="1+1=", samples=1, seed=0, request_id="r", **sampling):
    defaults = {"temperature": 1.0, "top_k": None, "top_p": 1.0, "max_new_tokens": 8}
    ids = np.array(token_ids(prompt), np.int32)
    params = SamplingParams(**{**defaults, **sampling})
    return GenerationRequest(request_id, ids, samples, seed, params)
