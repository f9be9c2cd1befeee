"""Whether the producers' engines compute with the trainer's weights.

An update passes conversions on its way into an engine, and an engine may keep or garble weights
without an error: stacked experts, derived matrices, packed layouts. So at the first version of a
run and at every n-th one each producer completes a few prompts, and the trainer computes the
log-probabilities of the same tokens with the weights of the same version.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from ray.exceptions import RayError

from grpo_trainer.algorithm.mismatch import mean_difference, probe_batch
from grpo_trainer.errors import RunFailedError
from grpo_trainer.messages import Completion, GenerationRequest, Ints

from .producer_session import ProducerSession
from .producers import ProducerPool
from .run_context import RunContext

_log = logging.getLogger(__name__)

PROMPTS = 4
TEXT = "Compute 1 + 1."
SAMPLES = 2
TOKENS = 64
"""Completions of a check are at most this long."""


@dataclass(frozen=True, slots=True, eq=False)
class _Probe:
    """What one producer sampled with the version that is checked."""

    session: ProducerSession
    prompts: tuple[Ints, ...]
    completions: tuple[Completion, ...]


class EngineCheck:
    """Compares engines and trainer at the versions that are due."""

    def __init__(self, context: RunContext, pool: ProducerPool) -> None:
        self._context = context
        self._pool = pool
        self.mismatch: float | None = None
        """Largest mean difference of a producer in the newest check, in nats per token."""

    def due(self, version: int) -> bool:
        """Whether a version is checked beside the first one of a run."""
        interval = self._context.spec.producers.engine_check.interval
        return interval > 0 and version % interval == 0

    async def run(self, version: int) -> None:
        """Check all ready producers at the newest version, which the consumers still have.

        A producer beyond the bound restarts, if another one is within it.

        Raises:
            RunFailedError: all producers are beyond the bound.
        """
        sessions = self._pool.sessions
        probes = [
            p for p in await asyncio.gather(*(self._probe(s, version) for s in sessions)) if p
        ]
        if not probes:
            return
        found = await self._differences(probes)
        self.mismatch = max(found)
        limit = self._context.spec.producers.engine_check.max_mismatch
        # Written so that NaN is beyond the bound.
        beyond = [(p.session, d) for p, d in zip(probes, found, strict=True) if not d <= limit]
        if len(beyond) == len(probes):
            raise RunFailedError(self._message(version, *beyond[0]))
        for session, difference in beyond:
            self._context.reporter.message(self._message(version, session, difference))
            session.client.kill()

    async def _probe(self, session: ProducerSession, version: int) -> _Probe | None:
        """Completions of a producer that were sampled with a version; None if it is lost."""
        context, prepared = self._context, self._context.prepared
        sampling = replace(
            prepared.sampling, max_new_tokens=min(TOKENS, prepared.sampling.max_new_tokens)
        )
        requests = {
            f"check-{version}-{i}": GenerationRequest(
                f"check-{version}-{i}", ids, SAMPLES, version * PROMPTS + i, sampling
            )
            for i, ids in enumerate(self._prompts())
        }

        def applied() -> bool:
            versions = context.publisher.applied_versions
            return versions.get(session.name, version) == version

        prompts: list[Ints] = []
        completions: list[Completion] = []
        try:
            async with asyncio.timeout(float(context.spec.worker_timeout_seconds)):
                await context.changed.wait_for(applied)
                async for rollout in session.client.rollouts(list(requests.values())):
                    kept = [c for c in rollout.completions if set(c.versions.tolist()) == {version}]
                    prompts += [requests[rollout.request_id].prompt_ids] * len(kept)
                    completions += kept
        except (RayError, TimeoutError) as error:
            _log.warning("%s was not checked: %s", session.name, error)
            return None
        return _Probe(session, tuple(prompts), tuple(completions)) if completions else None

    def _prompts(self) -> list[Ints]:
        """Prompts of the data; where an environment opens them, a text in their place."""
        prepared = self._context.prepared
        found = [p.token_ids for p in prepared.train.prompts[:PROMPTS] if len(p.token_ids)]
        return found or [np.array(prepared.tokenizer.encode(TEXT), dtype=np.int32)]

    async def _differences(self, probes: Sequence[_Probe]) -> list[float]:
        """Of each producer, by one forward pass for each of them."""
        batches = [probe_batch(p.prompts, p.completions) for p in probes]
        logprobs = await self._context.consumers.logprobs(batches)
        return [mean_difference(b, found) for b, found in zip(batches, logprobs, strict=True)]

    def _message(self, version: int, session: ProducerSession, difference: float) -> str:
        producers, model = self._context.spec.producers, self._context.spec.model.path
        return (
            f"engine mismatch: at version {version} the log-probabilities of {session.name} "
            f"(engine {producers.backend}) differ from the trainer's by {difference:.3g} nats per "
            "token on average, more than producers.engineCheck.maxMismatch "
            f"{producers.engine_check.max_mismatch:g}: it does not use the published weights of "
            f"{model}"
        )
