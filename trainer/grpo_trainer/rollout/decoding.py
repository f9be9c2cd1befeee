"""Sampling completions from a causal language model: one micro-batch, token by token.

Not `model.generate`, for three reasons: it reads a prompt once per completion instead of once, it
keeps finished completions in the batch until the last one ends, and it adds the stop tokens and
warpers of the model's own generation config.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel, StopStringCriteria
from transformers import PreTrainedTokenizerBase as Tokenizer

from grpo_trainer.algorithm.logprobs import sampling_distribution
from grpo_trainer.messages import GenerationRequest, Ints

from .caches import create_cache


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """N completions of at most T tokens; what lies beyond a completion's length has no meaning."""

    tokens: Tensor
    """[N, T]"""
    logprobs: Tensor
    """[N, T] fp32, in the distribution that each token was drawn from; a greedy one is certain."""
    lengths: Tensor
    """[N] tokens, with the one that ended the completion."""
    stopped: Tensor
    """[N] whether an end-of-sequence token or a stop string ended it, if only at the limit."""

    @classmethod
    def empty(cls, rows: int, limit: int, device: torch.device) -> Decoded:
        return cls(
            torch.zeros(rows, limit, dtype=torch.long, device=device),
            torch.zeros(rows, limit, device=device),
            torch.full((rows,), limit, device=device),
            torch.zeros(rows, dtype=torch.bool, device=device),
        )


class StopCondition:
    """Whether a completion ends with its newest token."""

    def __init__(
        self, eos_ids: frozenset[int], stop_strings: tuple[str, ...], tokenizer: Tokenizer
    ) -> None:
        self._eos_ids = torch.tensor(sorted(eos_ids), dtype=torch.long)
        self._strings = StopStringCriteria(tokenizer, list(stop_strings)) if stop_strings else None

    def __call__(self, completions: Tensor) -> Tensor:
        """[N] bool for the completions [N, t] so far, prompts left out."""
        self._eos_ids = self._eos_ids.to(completions.device)
        ended = (completions[:, -1:] == self._eos_ids).any(dim=1)
        if self._strings is not None:
            ended |= self._strings(completions, None)
        return ended


def draw(distribution: Tensor, uniforms: Tensor) -> Tensor:
    """Tokens [N] from log-probabilities [N, V] by inverting the CDF at uniforms [N] fp64.

    A row needs nothing but its own number, whatever else is in the batch. Tokens of probability 0
    are never drawn.
    """
    cumulative = distribution.exp().cumsum(dim=-1, dtype=torch.float64)
    thresholds = uniforms[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, thresholds, right=True).squeeze(1)


class _Batch:
    """Sequences under way: what the model has read of them, and its logits for the next token."""

    def __init__(self, model: PreTrainedModel, prompts: Sequence[Ints], limit: int) -> None:
        """Read prompts [P] of any lengths, each to be continued by at most `limit` tokens."""
        self._model = model
        self._length = max(map(len, prompts))
        ids = torch.zeros(len(prompts), self._length, dtype=torch.long)
        # [P, longest prompt + limit] 0 for the padding on the left, where any token id will do.
        mask = torch.ones(len(prompts), self._length + limit, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            padding = self._length - len(prompt)
            ids[row, padding:] = torch.tensor(prompt.tolist())
            mask[row, :padding] = 0
        self._mask = mask.to(model.device)
        self._cache = create_cache(model)
        self.logits = self._forward(ids.to(model.device))

    def select(self, rows: Tensor) -> None:
        """Continue with these rows; a row that is named several times is copied."""
        self._cache.batch_select_indices(rows)
        self._mask, self.logits = self._mask[rows], self.logits[rows]

    def append(self, tokens: Tensor) -> None:
        """Continue every row by one token of [N]."""
        self._length += 1
        self.logits = self._forward(tokens[:, None])

    def _forward(self, ids: Tensor) -> Tensor:
        mask = self._mask[:, : self._length]
        positions = (mask.cumsum(dim=1) - 1).clamp_min(0)[:, -ids.shape[1] :]
        logits: Tensor = self._model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        return logits[:, -1]


@torch.inference_mode()
def decode(
    model: PreTrainedModel, requests: Sequence[GenerationRequest], stop: StopCondition
) -> Decoded:
    """Answer requests of equal sampling parameters; completions lie in the order of the requests.

    Beside the cache, memory is O(N (V + T)): no step's distribution outlives its draw.
    """
    sampling, device = requests[0].sampling, model.device
    limit = sampling.max_new_tokens
    batch = _Batch(model, [request.prompt_ids for request in requests], limit)
    batch.select(_rows(requests).to(device))
    uniforms = _uniforms(requests).to(device)
    completions = Decoded.empty(len(uniforms), limit, device)
    live = torch.arange(len(uniforms), device=device)  # [rows of batch] their rows in `completions`
    for step in range(limit):
        distribution = sampling_distribution(
            batch.logits, sampling.temperature, sampling.top_k, sampling.top_p
        )
        tokens = draw(distribution, uniforms[live, step])
        completions.tokens[live, step] = tokens
        completions.logprobs[live, step] = distribution.gather(1, tokens[:, None]).squeeze(1)
        # A finished row is drawn on until it leaves the batch, but only its first end counts.
        ended = live[stop(completions.tokens[live, : step + 1]) & ~completions.stopped[live]]
        completions.lengths[ended] = step + 1
        completions.stopped[ended] = True
        going = (~completions.stopped[live]).nonzero().squeeze(1)
        if len(going) == 0 or step + 1 == limit:
            break
        # Moving the cache costs about as much as a step: do it once per halving of the batch.
        if 2 * len(going) <= len(live):
            batch.select(going)
            live, tokens = live[going], tokens[going]
        batch.append(tokens)
    return completions


def _rows(requests: Sequence[GenerationRequest]) -> Tensor:
    """[N] the request that each completion belongs to."""
    counts = torch.tensor([request.num_samples for request in requests])
    return torch.arange(len(requests)).repeat_interleave(counts)


def _uniforms(requests: Sequence[GenerationRequest]) -> Tensor:
    """[N, T] fp64 in [0, 1): all the randomness of each request, from its own seed."""
    return torch.cat(
        [
            torch.rand(
                request.num_samples,
                request.sampling.max_new_tokens,
                dtype=torch.float64,
                generator=torch.Generator().manual_seed(request.seed),
            )
            for request in requests
        ]
    )
