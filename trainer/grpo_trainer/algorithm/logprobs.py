"""The sampling distribution, and the log-probability of each token in it.

Producers sample with these functions and consumers train with them, so that with equal weights the
importance ratio is 1: temperature, then top-k, then nucleus, renormalized, all in fp32.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True, slots=True, eq=False)
class TokenLogprobs:
    """Log-probabilities and entropies of N sampled tokens."""

    logprobs: Tensor
    """[N] fp32, differentiable."""
    entropy: Tensor
    """[N] fp32, in nats, of the sampling distribution of each token; differentiable on request."""


def restrict_support(
    logits: Tensor, top_k: int | None, top_p: float, keep: Tensor | None = None
) -> Tensor:
    """Set the logits [N, V] outside the top-k, then outside the nucleus of the rest, to -inf.

    `top_k` None and `top_p` 1 are off. The sets are those of transformers' TopKLogitsWarper and
    TopPLogitsWarper: ties with the k-th logit stay, and the most likely token always does. The
    tokens `keep` [N] stay too, whatever their rank: a token that an older policy sampled may have
    left the nucleus, and its log-probability must remain finite.
    """
    with torch.no_grad():
        inside = torch.ones_like(logits, dtype=torch.bool)
        if top_k is not None and top_k < logits.shape[-1]:
            inside = logits >= logits.topk(top_k, dim=-1).values[:, -1:]
        if top_p < 1:
            ascending, order = logits.masked_fill(~inside, -torch.inf).sort(dim=-1)
            tail = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - top_p
            tail[:, -1] = False
            inside = ~torch.empty_like(tail).scatter_(1, order, tail)
        if keep is not None:
            inside.scatter_(1, keep[:, None], True)
    return logits.masked_fill(~inside, -torch.inf)


def sampling_distribution(
    logits: Tensor,
    temperature: float,
    top_k: int | None,
    top_p: float,
    keep: Tensor | None = None,
) -> Tensor:
    """Log-probabilities [N, V] fp32 that tokens are sampled with, for logits [N, V] of any float.

    Temperature 0 is greedy: all mass on the most likely token, the first of equals.
    """
    logits = logits.float()
    if temperature == 0:
        best = logits.argmax(dim=-1, keepdim=True)
        return torch.full_like(logits, -torch.inf).scatter_(1, best, 0.0)
    logits = logits / temperature
    if top_k is not None or top_p < 1:
        logits = restrict_support(logits, top_k, top_p, keep)
    return logits.log_softmax(dim=-1)


def token_logprobs(
    inputs: Tensor,
    targets: Tensor,
    *,
    temperature: float,
    top_k: int | None,
    top_p: float,
    project: Callable[[Tensor], Tensor] = lambda logits: logits,
    chunk: int = 1024,
    entropy_gradient: bool = False,
) -> TokenLogprobs:
    """Log-probabilities of the tokens `targets` [N] under logits [N, V] of any float type.

    `project` makes logits of `inputs`, which otherwise are the logits. Processes `chunk` rows at a
    time and recomputes each chunk in the backward pass, projection included, so that at most one
    chunk of fp32 logits exists.
    """
    assert temperature > 0, "greedy sampling has no gradient"
    run = partial(
        _chunk_logprobs,
        project=project,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        entropy_gradient=entropy_gradient,
    )
    if torch.is_grad_enabled() and inputs.requires_grad and len(inputs) > chunk:
        # A chunk uses no random numbers.
        run = partial(checkpoint, run, use_reentrant=False, preserve_rng_state=False)
    chunks = zip(torch.split(inputs, chunk), torch.split(targets, chunk), strict=True)
    logprobs, entropies = zip(*(run(rows, tokens) for rows, tokens in chunks), strict=True)
    return TokenLogprobs(torch.cat(logprobs), torch.cat(entropies))


def _chunk_logprobs(
    inputs: Tensor,
    targets: Tensor,
    *,
    project: Callable[[Tensor], Tensor],
    temperature: float,
    top_k: int | None,
    top_p: float,
    entropy_gradient: bool,
) -> tuple[Tensor, Tensor]:
    logits = project(inputs)
    distribution = sampling_distribution(logits, temperature, top_k, top_p, keep=targets)
    # p ln p is 0 at p = 0, where -inf times 0 would be NaN.
    if entropy_gradient:
        finite = distribution.masked_fill(distribution == -torch.inf, 0.0)
        entropy = -(distribution.exp() * finite).sum(dim=-1)
    else:
        entropy = torch.special.entr(distribution.detach().exp()).sum(dim=-1)
    return distribution.gather(1, targets[:, None]).squeeze(1), entropy
