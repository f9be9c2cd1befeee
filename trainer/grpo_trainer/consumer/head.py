"""The output projection, computing log-probabilities instead of logits.

Logits of a vocabulary of 150,000 tokens are the largest tensors of a training step. Here they exist
for a bounded number of response tokens at a time, in the forward and in the backward pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from grpo_trainer.algorithm.chunks import chunk_rows
from grpo_trainer.algorithm.logprobs import token_logprobs
from grpo_trainer.errors import InvalidInputError, invalid

from .backend import DeviceBatch, ResponseLogprobs
from .records import PolicyOptions

_CHECKED_TOKENS = 8
_TOLERANCE = 0.1
"""Nats. Two forward passes in bfloat16 differ by less, a missing scale or cap by more."""


class LogprobHead:
    """Replaces `forward` of a model's output projection, inside the model's own forward pass.

    For each micro-batch that is announced by `expect` the model returns, as its logits, the
    log-probabilities and entropies [B, L, 2] in fp32 of the response tokens, 0 elsewhere. Only the
    hidden states that predict response tokens are projected, a chunk of rows at a time, and each
    chunk is projected again in the backward pass. Without an announced micro-batch the model
    returns logits as ever.
    """

    def __init__(
        self,
        model: Any,
        options: PolicyOptions,
        vocabulary: int,
        gather: Callable[[Tensor], Tensor] = lambda logits: logits,
    ) -> None:
        """`gather` completes logits [N, V'] that tensor parallelism left split."""
        head = model.get_output_embeddings()
        self._project, self._gather = head.forward, gather
        self._adjust = take_adjustment(model)
        self._pending: deque[DeviceBatch] = deque()
        self._token_logprobs = partial(
            token_logprobs,
            project=self._logits,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            chunk=chunk_rows(vocabulary),
            entropy_gradient=options.algorithm.entropy_coefficient > 0,
        )
        head.forward = self._forward

    def expect(self, *batches: DeviceBatch) -> None:
        """Announce the micro-batches of the next forward passes, in their order."""
        self._pending.extend(batches)

    def _logits(self, hidden: Tensor) -> Tensor:
        return self._adjust(self._gather(self._project(hidden)))

    def _forward(self, hidden: Tensor) -> Tensor:
        if not self._pending:
            return self._adjust(self._project(hidden))
        batch = self._pending.popleft()
        # The token at position t is predicted by the hidden state at t - 1.
        predicts, mask = batch.mask[:, 1:], batch.mask
        rows, targets = hidden[:, :-1][predicts], batch.ids[:, 1:][predicts]
        count = len(rows)
        if count == 0:
            # Collective calls need something to gather, and the loss needs a graph.
            rows, targets = hidden[:1, 0], batch.ids[:1, 0]
        found = self._token_logprobs(rows, targets)
        blank = torch.zeros(mask.shape, dtype=torch.float32, device=hidden.device)
        return torch.stack(
            [
                blank.masked_scatter(mask, found.logprobs[:count]),
                blank.masked_scatter(mask, found.entropy[:count]),
            ],
            dim=-1,
        )


def response_logprobs(output: Tensor) -> ResponseLogprobs:
    """What the head returned as the model's logits [B, L, 2]."""
    return ResponseLogprobs(output[..., 0], output[..., 1])


def take_adjustment(model: Any) -> Callable[[Tensor], Tensor]:
    """Move what a model does to its logits after the projection into a function.

    Gemma caps them, Granite divides and Cohere multiplies them by a constant. The model is left
    without: what its forward pass gets from the head are log-probabilities.
    """
    config = model.config
    cap = getattr(config, "final_logit_softcapping", None)
    if cap:
        config.final_logit_softcapping = None
        return lambda logits: torch.tanh(logits / cap) * cap
    divisor = getattr(config, "logits_scaling", None)
    if divisor is not None:
        config.logits_scaling = 1.0
        return lambda logits: logits / divisor
    factor = getattr(model, "logit_scale", None)
    if isinstance(factor, (int, float)):
        model.logit_scale = 1.0
        return lambda logits: logits * factor
    return lambda logits: logits


@torch.no_grad()
def attach_head(
    model: Any,
    run: Callable[[Tensor], Tensor] | None,
    options: PolicyOptions,
    vocabulary: int,
    gather: Callable[[Tensor], Tensor] = lambda logits: logits,
) -> LogprobHead:
    """Replace a model's output projection, and compare it with the logits that the model had.

    `run` returns the model's logits [B, L, V'] for ids [B, L]; None skips the comparison, where one
    process cannot run the model. Collective like the model's forward pass.

    Raises InvalidInputError when they differ: the model changes its logits in an unknown way.
    """
    if run is None:
        return LogprobHead(model, options, vocabulary, gather)
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(vocabulary, (1, _CHECKED_TOKENS), generator=generator).to(device)
    expected = token_logprobs(
        gather(run(ids))[0, :-1],
        ids[0, 1:],
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
    ).logprobs
    head = LogprobHead(model, options, vocabulary, gather)
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False
    unused = torch.zeros(0, device=device)
    head.expect(DeviceBatch(ids, mask, unused, unused))
    found = response_logprobs(run(ids)).logprobs[0, 1:]
    # Of weights that are not finite the log-probabilities are not either, and equally so.
    same = torch.isclose(found, expected, equal_nan=True)
    difference = float(torch.where(same, 0.0, (found - expected).abs()).mean())
    if not difference <= _TOLERANCE:
        must = (
            "must be a model whose logits are those of its output projection, capped or scaled as "
            f"in Gemma, Granite and Cohere; log-probabilities differ by {difference:.2g} nats"
        )
        raise InvalidInputError(invalid("spec.model.path", options.model_path, must))
    return head
