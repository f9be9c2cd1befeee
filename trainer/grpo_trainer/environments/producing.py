"""The episodes of a producer: the group of a request, side by side."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from grpo_trainer.messages import Completion, GenerationRequest, Opening, Rollout, Score

from .chat import load_conversation
from .client import EnvironmentClient
from .episode import Engine, EpisodeLimits, Played, Player, derived_seed, failed_completion
from .protocol import EnvironmentFaultError, Reason

_log = logging.getLogger(__name__)
_FIRST_DELAY_SECONDS = 0.25
_MAX_DELAY_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class EnvironmentOptions:
    """The environment of a producer."""

    url: str
    limits: EpisodeLimits
    unavailable_seconds: float
    """How long to repeat an episode whose environment cannot be reached."""
    max_concurrent: int
    """Episodes at a time."""


class EpisodeRunner:
    """Answers requests with episodes."""

    def __init__(
        self,
        engine: Engine,
        options: EnvironmentOptions,
        model_path: str,
        tokenizer_path: str,
        *,
        trust_remote_code: bool,
    ) -> None:
        conversation = load_conversation(
            model_path, tokenizer_path, trust_remote_code=trust_remote_code
        )
        self._player = Player(engine, conversation, options.limits)
        self._client = EnvironmentClient(options.url)
        self._slots = asyncio.Semaphore(options.max_concurrent)
        self._unavailable_seconds = options.unavailable_seconds

    async def rollout(self, request: GenerationRequest) -> Rollout:
        """The episodes of one request: one opening, and as many episodes as it asks for samples.

        Episodes that the environment failed in are without a reward, those that did not begin
        without tokens.

        Raises:
            EngineClosedError: the engine was closed meanwhile.
        """
        tasks = [
            asyncio.create_task(self._episode(request, index))
            for index in range(request.num_samples)
        ]
        try:
            played = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        opening, completions = _of_one_opening(played)
        return Rollout(request.request_id, completions, opening)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _episode(self, request: GenerationRequest, index: int) -> Played:
        of_one = replace(
            request,
            request_id=f"{request.request_id}/{index}",
            num_samples=1,
            seed=derived_seed(request.seed, f"episode {index}"),
        )
        # In 31 bits: not every language has integers of 63.
        task_seed = request.seed % 2**31
        async with self._slots:
            return await self._repeated(of_one, task_seed)

    async def _repeated(self, request: GenerationRequest, task_seed: int) -> Played:
        """The episode, repeated from the start while its environment is unavailable."""
        clock = asyncio.get_running_loop().time
        delay, deadline = _FIRST_DELAY_SECONDS, None
        while True:
            try:
                return await self._player.play(self._client.episode(), request, task_seed)
            except EnvironmentFaultError as error:
                assert error.reason is Reason.UNAVAILABLE
                if deadline is None:
                    deadline = clock() + self._unavailable_seconds
                    _log.warning("%s: repeating the episode: %s", request.request_id, error.detail)
                if clock() + delay > deadline:
                    return Played(None, failed_completion(error))
            await asyncio.sleep(delay)
            delay = min(2 * delay, _MAX_DELAY_SECONDS)


def _of_one_opening(
    played: Sequence[Played],
) -> tuple[Opening | None, tuple[Completion, ...]]:
    """The opening of a group; episodes with another one cannot be compared, and lose their
    reward."""
    opening = next((p.opening for p in played if p.opening is not None), None)

    def alike(one: Played) -> bool:
        ours = one.opening
        return ours is None or (
            opening is not None and np.array_equal(ours.token_ids, opening.token_ids)
        )

    return opening, tuple(p.completion if alike(p) else _unlike(p.completion) for p in played)


def _unlike(completion: Completion) -> Completion:
    assert completion.episode is not None
    failure = "/reset: the opening differs within a group; it must depend on row and seed alone"
    score = Score(None, format_accuracy=0.0, accuracy=0.0, error=Reason.OPENING)
    return replace(completion, episode=replace(completion.episode, score=score, failure=failure))
