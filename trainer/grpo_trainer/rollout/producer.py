"""The Ray actor around one engine. The driver makes it remote: `ray.remote(Producer)`."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo_trainer.messages import GenerationRequest, Rollout
from grpo_trainer.stacks import thread_stacks
from grpo_trainer.transport.plan import GroupMember
from grpo_trainer.weight_delta import WeightMirror

from .engine import EngineOptions
from .factory import create_engine

if TYPE_CHECKING:
    from ray import ObjectRef

    from grpo_trainer.environments.producing import EnvironmentOptions

WEIGHTS_DEADLINE_SECONDS = 600.0
"""For fetching a version from the object store, maybe from another node."""


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """Who a producer is, and where it runs."""

    name: str
    backend: str
    host: str
    pid: int
    node: str
    """Ray's id of its node."""


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """Since the producer's start."""

    version: int | None
    """Weights in use; None before the first ones."""
    busy_seconds: float
    """Spent generating, up to this moment."""
    apply_seconds: float
    """Spent writing weights, while generation stood still."""


class Producer:
    """Generates rollouts. Its methods may be called at once; the engine batches what they ask."""

    def __init__(
        self,
        options: EngineOptions,
        backend: str,
        name: str,
        environment: EnvironmentOptions | None = None,
        *,
        deltas: bool = False,
    ) -> None:
        """`environment` plays the requests that have a row; with `deltas` a host copy of the
        weights is kept, which differences are applied to."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        self._info = ProducerInfo(name, backend, socket.gethostname(), os.getpid(), node)
        self._engine = create_engine(backend, options)
        self._episodes = None
        if environment is not None:
            from grpo_trainer.environments.producing import EpisodeRunner

            self._episodes = EpisodeRunner(
                self._engine,
                environment,
                options.model_path,
                options.tokenizer_path,
                trust_remote_code=options.trust_remote_code,
            )
        # Ray builds this object off the main thread, where Python sets no handler. This one may be
        # set anywhere, and writes a trace. After the engine, whose processes must not inherit it.
        self._terminated, written = os.pipe()
        faulthandler.register(signal.SIGTERM, written, all_threads=False)
        self._loading = asyncio.Lock()
        self._mirror = WeightMirror() if deltas else None
        self._apply_seconds = 0.0

    async def ready(self) -> ProducerInfo:
        """Answers once the engine is built; it may still be without weights."""
        await self._engine.ready()
        return self._info

    async def stop_requested(self) -> None:
        """Returns at the first SIGTERM to this process, which continues; a second one ends it."""
        requested, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_reader(self._terminated, requested.set)
        try:
            await requested.wait()
        finally:
            loop.remove_reader(self._terminated)
        faulthandler.unregister(signal.SIGTERM)

    async def rollout(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[list[Rollout]]:
        """Yield the rollouts as they finish, in one item those that finish together.

        Raises:
            EngineClosedError: the producer was shut down meanwhile.
        """
        answers = [asyncio.create_task(self._answer(request)) for request in requests]
        pending = set(answers)
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                yield [answer.result() for answer in answers if answer in done]
        finally:
            for task in answers:
                task.cancel()

    async def _answer(self, request: GenerationRequest) -> Rollout:
        if request.row is None:
            return await self._engine.generate(request)
        assert self._episodes is not None, "a row without an environment"
        return await self._episodes.rollout(request)

    async def load_weights(
        self, refs: Sequence[ObjectRef], deadline_seconds: float = WEIGHTS_DEADLINE_SECONDS
    ) -> float:
        """Fetch one version's bundles, one reference per pipeline stage, and switch to it.

        The references may be to deltas, of one or more versions that follow each other. Generation
        continues during the fetch. Returns the seconds that it paused.

        Raises:
            TimeoutError: the bundles did not arrive in time; the version in use stays.
            ValueError: the bundles are not one version of this model.
            WeightsDifferError: deltas do not lead to their version; the version in use stays.
        """
        async with self._loading:  # a version must not overtake the one before it
            try:
                bundles = await asyncio.wait_for(asyncio.gather(*refs), deadline_seconds)
            except TimeoutError:
                raise TimeoutError(f"weights did not arrive in {deadline_seconds:g} s") from None
            if self._mirror is not None:
                bundles = await asyncio.to_thread(self._mirror.update, bundles)
            seconds = await self._engine.load_weights(bundles)
        self._apply_seconds += seconds
        return seconds

    async def join_group(self, members: Sequence[GroupMember]) -> None:
        """Become a receiver of broadcasts; raises RuntimeError when the groups do not form."""
        async with self._loading:
            await self._engine.join_group(members)

    async def receive_weights(self, version: int) -> float:
        """Switch to a version that is being broadcast; see `RolloutEngine.receive_weights`."""
        async with self._loading:
            seconds = await self._engine.receive_weights(version)
        self._apply_seconds += seconds
        return seconds

    async def stats(self) -> ProducerStats:
        """What it did since its start."""
        return ProducerStats(self._engine.version, self._engine.busy_seconds, self._apply_seconds)

    async def stacks(self) -> str:
        """Where its threads stand, also while the engine's hangs."""
        return thread_stacks()

    async def shutdown(self) -> None:
        """Fail what is unanswered; further requests are refused."""
        await self._engine.close()
        if self._episodes is not None:
            await self._episodes.close()
