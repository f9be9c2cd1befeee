"""Completions of vLLM producers that last long enough for something to happen meanwhile."""

import asyncio

import torch

from support.producers import SECONDS
from unit.rollout.tiny_models import EOS, request, tiny_model, token_ids

LONG = 1000
SAMPLES = 3
[EXTRA_EOS] = token_ids("!")


def endless_model(seed=0, tied=False):
    """A random model that never ends a completion, whatever it has read.

    One coordinate of the residual stream stays what the embedding made it, and rules the ends out.
    """
    model = tiny_model(tied, seed)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = 0
            layer.mlp.down_proj.weight[0] = 0
        model.model.embed_tokens.weight[:, 0] = 1
        model.get_output_embeddings().weight[[EOS, EXTRA_EOS], 0] = -20
    return model


def long_request(request_id="long"):
    return request(samples=SAMPLES, max_new_tokens=LONG, request_id=request_id)


async def until_busy(producer):
    """Wait until tokens are under way."""
    async with asyncio.timeout(SECONDS):
        before = (await producer.stats.remote()).busy_seconds
        while (await producer.stats.remote()).busy_seconds < before + 0.3:
            await asyncio.sleep(0.02)
