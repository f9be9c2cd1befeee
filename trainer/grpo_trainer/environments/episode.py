"""One episode: turns of the engine and answers of the environment, token ids in, token ids out."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from grpo_trainer.messages import (
    Bools,
    Completion,
    Episode,
    FinishReason,
    Floats,
    GenerationRequest,
    Ints,
    Message,
    Opening,
    Rollout,
    Score,
)

from .conversation import ContinuationError, Conversation
from .protocol import Environment, EnvironmentFaultError, Observation, Reason, Task

T = TypeVar("T")

CUT = " [cut]"
"""Follows a text of the environment that was longer than an observation may be."""


class Engine(Protocol):
    """The part of a rollout engine that an episode needs."""

    async def generate(self, request: GenerationRequest) -> Rollout: ...


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """Bounds of one episode."""

    max_turns: int
    max_prompt_tokens: int
    """Of the opening."""
    max_episode_tokens: int
    """Behind the opening, observations included."""
    max_observation_tokens: int
    step_seconds: float
    """Deadline of a call to the environment."""


@dataclass(frozen=True, slots=True)
class Played:
    """A finished episode."""

    opening: Opening | None
    """None where the environment failed before it."""
    completion: Completion


@dataclass(slots=True, eq=False)
class _Record:
    """An episode under way."""

    opening: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    tokens: list[Ints] = field(default_factory=list)
    sampled: list[Bools] = field(default_factory=list)
    logprobs: list[Floats] = field(default_factory=list)
    versions: list[Ints] = field(default_factory=list)
    turns: list[Message] = field(default_factory=list)
    length: int = 0
    """Tokens behind the opening."""
    reward: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    finish: FinishReason = FinishReason.STOP

    @property
    def context(self) -> Ints:
        """[P + T] what the model reads next."""
        return np.concatenate([self.opening, *self.tokens])

    def add_turn(self, turn: Completion, text: str) -> None:
        """Add a turn of the model."""
        drawn = np.ones(len(turn.token_ids), np.bool_)
        self._add(turn.token_ids, drawn, turn.logprobs, turn.versions)
        self.turns.append(Message("assistant", text))

    def add_observation(self, ids: Ints, messages: Sequence[Message]) -> None:
        """Add what the environment answered to the newest turn."""
        count = len(ids)
        unknown = np.full(count, np.nan, np.float32)
        version = np.full(count, self.versions[-1][-1], np.int32)
        self._add(ids, np.zeros(count, np.bool_), unknown, version)
        self.turns.extend(messages)

    def add_outcome(self, seen: Observation) -> None:
        """Add the reward and the metrics of a turn."""
        self.reward += seen.reward
        self.metrics |= seen.metrics

    def _add(self, ids: Ints, sampled: Bools, logprobs: Floats, versions: Ints) -> None:
        self.tokens.append(ids)
        self.sampled.append(sampled)
        self.logprobs.append(logprobs)
        self.versions.append(versions)
        self.length += len(ids)

    def completion(self, fault: EnvironmentFaultError | None) -> Completion:
        """The episode as the trainer takes it."""
        episode = Episode(
            sampled=_joined(self.sampled, np.bool_),
            turns=tuple(self.turns),
            score=_score(self.reward, self.metrics, fault),
            metrics=self.metrics,
            failure=fault.detail if fault else "",
        )
        return Completion(
            token_ids=_joined(self.tokens, np.int32),
            logprobs=_joined(self.logprobs, np.float32),
            versions=_joined(self.versions, np.int32),
            text=transcript(self.turns),
            finish_reason=self.finish,
            episode=episode,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Player:
    """Plays episodes over one engine."""

    engine: Engine
    conversation: Conversation
    limits: EpisodeLimits

    async def play(
        self, environment: Environment, request: GenerationRequest, task_seed: int
    ) -> Played:
        """Play one episode for a request of one sample.

        A failure of the environment's is a score without a reward, and leaves the loss.

        Raises:
            EnvironmentFaultError: the environment is unavailable; the episode may be repeated.
            EngineClosedError: the engine was closed before the end.
        """
        record, fault, opening = _Record(), None, None
        try:
            task = await self._call(environment.reset(request.row or {}, task_seed))
            opening = Opening(self._opening(task), task.messages)
            record.opening = opening.token_ids
            await self._turns(environment, request, record, task)
        except EnvironmentFaultError as error:
            if error.reason is Reason.UNAVAILABLE:
                raise
            fault = error
        finally:
            try:
                await self._call(environment.close())
            except EnvironmentFaultError:
                record.metrics["close_failed"] = 1.0  # an episode that is over is as it is
        return Played(opening, record.completion(fault))

    async def _turns(
        self, environment: Environment, request: GenerationRequest, record: _Record, task: Task
    ) -> None:
        """Play until the environment is done or a limit is reached."""
        limits = self.limits
        for turn in range(limits.max_turns):
            drawn = await self._turn(request, record, turn)
            text = self.conversation.text(drawn.token_ids)
            record.add_turn(drawn, text)
            if drawn.finish_reason is not FinishReason.STOP:
                record.finish = drawn.finish_reason  # a truncated turn cannot be answered
                return
            seen = await self._call(environment.step(text))
            record.add_outcome(seen)
            if seen.done:
                return
            closed = self.conversation.ends(int(drawn.token_ids[-1]))
            messages, added = self._observation(seen.messages, task, closed=closed)
            room = limits.max_episode_tokens - record.length - len(added)
            if turn + 1 == limits.max_turns or room < request.sampling.max_new_tokens:
                record.finish = FinishReason.LENGTH  # no observation that nothing follows
                return
            record.add_observation(added, messages)

    async def _turn(self, request: GenerationRequest, record: _Record, turn: int) -> Completion:
        # Each turn has the same budget, so that turns of all episodes share micro-batches.
        asked = replace(
            request,
            request_id=f"{request.request_id}/{turn}",
            prompt_ids=record.context,
            seed=derived_seed(request.seed, f"turn {turn}"),
            row=None,
        )
        [drawn] = (await self.engine.generate(asked)).completions
        return drawn

    async def _call(self, call: Awaitable[T]) -> T:
        seconds = self.limits.step_seconds
        try:
            async with asyncio.timeout(seconds):
                return await call
        except TimeoutError:
            detail = f"no answer within {seconds:g} s"
            raise EnvironmentFaultError(Reason.TIMEOUT, detail) from None

    def _opening(self, task: Task) -> Ints:
        try:
            ids = self.conversation.opening(task)
        except ContinuationError as error:
            raise EnvironmentFaultError(Reason.INVALID, f"chat template: {error}") from error
        limit = self.limits.max_prompt_tokens
        if len(ids) > limit:
            detail = f"{len(ids)} tokens, more than sampling.maxPromptTokens {limit}"
            raise EnvironmentFaultError(Reason.OPENING, detail)
        return ids

    def _observation(
        self, given: Sequence[Message], task: Task, *, closed: bool
    ) -> tuple[Sequence[Message], Ints]:
        """The messages, the longest one cut until they fit, and their token ids."""
        messages, limit = list(given), self.limits.max_observation_tokens
        try:
            ids = self.conversation.continuation(messages, task, closed=closed)
            while len(ids) > limit:
                place = max(range(len(messages)), key=lambda i: len(messages[i].content))
                text = messages[place].content.removesuffix(CUT)
                if not text:
                    detail = f"maxObservationTokens {limit}: the chat template alone needs more"
                    raise EnvironmentFaultError(Reason.INVALID, detail)
                # At least a tenth less each time, so that it ends.
                keep = int(len(text) * min(0.9, limit / len(ids)))
                messages[place] = replace(messages[place], content=text[:keep] + CUT)
                ids = self.conversation.continuation(messages, task, closed=closed)
        except ContinuationError as error:
            raise EnvironmentFaultError(Reason.INVALID, f"chat template: {error}") from error
        return messages, ids


def _score(
    reward: float, metrics: Mapping[str, float], fault: EnvironmentFaultError | None
) -> Score:
    if fault is not None:
        return Score(None, format_accuracy=0.0, accuracy=0.0, error=fault.reason)
    return Score(
        reward=reward,
        format_accuracy=metrics.get("format_accuracy", 1.0),
        accuracy=metrics.get("accuracy", min(max(reward, 0.0), 1.0)),
    )


def failed_completion(fault: EnvironmentFaultError) -> Completion:
    """An episode that did not begin."""
    return _Record().completion(fault)


def transcript(turns: Sequence[Message]) -> str:
    """The turns as text for people, each of the environment's under its role."""
    parts = [
        turn.content if turn.role == "assistant" else f"[{turn.role}] {turn.content}"
        for turn in turns
    ]
    return "\n".join(parts)


def derived_seed(seed: int, name: str) -> int:
    """A seed of 63 bits that follows from another."""
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _joined(parts: Sequence[Any], dtype: Any) -> Any:
    return np.concatenate(parts) if parts else np.empty(0, dtype)
