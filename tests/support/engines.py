"""Requests of several lengths to an engine, and the importance ratios of its completions."""

import asyncio

import numpy as np

from support.producers import trained_logprobs
from unit.rollout.tiny_models import request

PROMPTS = ("7*8=", "What is 12+34? ", "a", "Compute (3+4)*5 - 6 / 2 = ")


async def ask(engine, requests):
    return await asyncio.gather(*map(engine.generate, requests))


def ragged_requests(samples=6, **sampling):
    return [
        request(prompt, samples, seed=seed, request_id=str(seed), **sampling)
        for seed, prompt in enumerate(PROMPTS)
    ]


def importance_ratios(model, requests, rollouts):
    return np.concatenate(
        [
            np.exp(trained_logprobs(model, r, c) - c.logprobs)
            for r, rollout in zip(requests, rollouts, strict=True)
            for c in rollout.completions
        ]
    )
