"""Producer actors in Ray, and what the trainer makes of their completions."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch

from grpo_trainer.algorithm.logprobs import token_logprobs
from grpo_trainer.messages import Completion, GenerationRequest, Rollout
from grpo_trainer.rollout.engine import EngineOptions
from grpo_trainer.rollout.producer import Producer
from unit.rollout.tiny_models import bundle

SECONDS = 120.0
"""Deadline of every wait on an actor; starting one takes most of it on a busy machine."""


def start_producer(python: Path, options: EngineOptions) -> Any:
    """A producer actor with a vLLM engine, run by the given interpreter."""
    return (
        ray.remote(Producer)
        .options(num_cpus=0, max_concurrency=1000, runtime_env={"py_executable": str(python)})
        .remote(options, "vllm", "producer-0")
    )


def load(producer: Any, model: Any, version: int) -> float:
    """Hand a model's weights to a producer through the object store."""
    references = [ray.put(bundle(model, version))]
    return ray.get(producer.load_weights.remote(references), timeout=SECONDS)


def stream(producer: Any, requests: Sequence[GenerationRequest]) -> Any:
    return producer.rollout.options(num_returns="streaming").remote(requests)


async def collect(rollouts: Any) -> dict[str, Rollout]:
    """All rollouts of a stream, by request."""
    async with asyncio.timeout(SECONDS):
        found = [rollout async for ref in rollouts for rollout in await ref]
    return {rollout.request_id: rollout for rollout in found}


async def ask(producer: Any, requests: Sequence[GenerationRequest]) -> list[Rollout]:
    """The answers in the order of the requests."""
    found = await collect(stream(producer, requests))
    return [found[request.request_id] for request in requests]


def trained_logprobs(
    model: Any, request: GenerationRequest, completion: Completion
) -> np.ndarray[Any, Any]:
    """[T] as the trainer has them: prompt and completion in one right-padded row, without a
    cache."""
    sequence = np.concatenate([request.prompt_ids, completion.token_ids]).astype(np.int64)
    ids = torch.nn.functional.pad(torch.from_numpy(sequence), (0, 7))[None]
    mask = (torch.arange(ids.shape[1]) < len(sequence)).long()[None]
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask).logits[0]
    return token_logprobs(
        logits[len(request.prompt_ids) - 1 : len(sequence) - 1],
        torch.from_numpy(completion.token_ids.astype(np.int64)),
        temperature=request.sampling.temperature,
        top_k=request.sampling.top_k,
        top_p=request.sampling.top_p,
    ).logprobs.numpy()
