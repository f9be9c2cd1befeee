"""Requests of several lengths to an engine, and the importance ratios of its replies."""

import asyncio

import numpy as np
import torch

from grpo_trainer.algorithm.logprobs import token_logprobs
from unit.rollout.tiny_models import request

PROMPTS = ("7*8=", "What is 12+34? ", "a", "Compute (3+4)*5 - 6 / 2 = ")


async def ask(engine, requests):
    return await asyncio.gather(*map(engine.generate, requests))


def ragged_requests(samples=6, **sampling):
    return [
        request(prompt, samples, seed=seed, request_id=str(seed), **sampling)
        for seed, prompt in enumerate(PROMPTS)
    ]


def training_logprobs(model, prompt_ids, completion, sampling):
    """As the trainer has them: prompt and reply in one right-padded row, without a cache."""
    sequence = np.concatenate([prompt_ids, completion.token_ids]).astype(np.int64)
    ids = torch.nn.functional.pad(torch.from_numpy(sequence), (0, 7))[None]
    mask = (torch.arange(ids.shape[1]) < len(sequence)).long()[None]
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask).logits[0]
    predicting = logits[len(prompt_ids) - 1 : len(sequence) - 1]
    return token_logprobs(
        predicting,
        torch.from_numpy(completion.token_ids.astype(np.int64)),
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
    ).logprobs.numpy()


def importance_ratios(model, requests, rollouts):
    return np.concatenate(
        [
            np.exp(training_logprobs(model, r.prompt_ids, c, r.sampling) - c.logprobs)
            for r, rollout in zip(requests, rollouts, strict=True)
            for c in rollout.completions
        ]
    )
