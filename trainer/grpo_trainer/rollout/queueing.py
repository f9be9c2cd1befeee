"""Which of the waiting requests are generated for together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from grpo_trainer.messages import GenerationRequest, Rollout


@dataclass(frozen=True, slots=True, eq=False)
class PendingRequest:
    """A request with the future that its caller waits on."""

    request: GenerationRequest
    answer: asyncio.Future[Rollout] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


def split_microbatch(
    queue: Sequence[PendingRequest], prompts: int, completions: int
) -> tuple[list[PendingRequest], list[PendingRequest]]:
    """The oldest request with others of equal sampling, and the rest, both in order of arrival.

    At most `prompts` are taken, or more of them while they ask for at most `completions` in all.
    Requests that nobody waits for any more are in neither part.
    """
    batch: list[PendingRequest] = []
    rest: list[PendingRequest] = []
    rows = 0
    for pending in queue:
        if pending.answer.done():
            continue
        request = pending.request
        alike = not batch or request.sampling == batch[0].request.sampling
        if alike and (len(batch) < prompts or rows + request.num_samples <= completions):
            batch.append(pending)
            rows += request.num_samples
        else:
            rest.append(pending)
    return batch, rest
