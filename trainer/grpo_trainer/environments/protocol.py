"""What crosses between trainer and environment, as records, and how its JSON is read.

POST /reset {row, seed} -> {id, messages, tools}
POST /step {id, completion} -> {messages, done, reward, metrics}
POST /close {id} -> {}
GET /health -> {capacity, roles}
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from grpo_trainer.messages import Message

OPENING_ROLES = ("system", "user", "assistant", "tool")
ANSWER_ROLES = ("user", "tool")
"""Roles of the messages between two turns of the model."""


@dataclass(frozen=True, slots=True)
class Task:
    """The opening of an episode."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    """JSON schemas, as chat templates take them."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What an environment answers to a turn."""

    messages: tuple[Message, ...] = ()
    """Empty where the episode is done."""
    done: bool = False
    reward: float = 0.0
    """Of this turn; an episode earns the sum."""
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Health:
    """What an environment reports of itself."""

    roles: tuple[str, ...]
    """Roles of the messages that it answers with."""
    capacity: int | None = None
    """Episodes that it plays at a time; None where it has no limit."""


class Reason(StrEnum):
    """Why an episode could not be scored."""

    TIMEOUT = "environment_timeout"
    """A call exceeded its deadline."""
    EXCEPTION = "environment_exception"
    """The environment's code raised."""
    UNAVAILABLE = "environment_unavailable"
    """It could not be reached, or has lost the episode."""
    INVALID = "environment_invalid"
    """Its answer cannot be used."""
    OPENING = "environment_opening"
    """The opening is too long, or differs within a group."""


class EnvironmentFaultError(Exception):
    """The environment failed; never the fault of the prompt or the policy."""

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}")


class Environment(Protocol):
    """One episode's environment; each method raises EnvironmentFaultError."""

    async def reset(self, row: Mapping[str, Any], seed: int) -> Task:
        """Begin the episode. The opening depends on row and seed alone."""

    async def step(self, completion: str) -> Observation:
        """Answer one turn of the model."""

    async def close(self) -> None:
        """End the episode, also one that has failed or has not begun."""


def read_task(body: Mapping[str, Any]) -> Task:
    """The answer to `/reset`; raises EnvironmentFaultError."""
    messages = _messages("/reset", body, OPENING_ROLES)
    if not messages or messages[-1].role == "assistant":
        raise _invalid("/reset", "messages", "must be non-empty and not end with role assistant")
    tools = body.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _invalid("/reset", "tools", "must be a list of JSON schemas")
    return Task(messages, tuple(tools))


def read_observation(body: Mapping[str, Any]) -> Observation:
    """The answer to `/step`; raises EnvironmentFaultError."""
    done = body.get("done", False)
    if not isinstance(done, bool):
        raise _invalid("/step", "done", "must be true or false")
    messages = _messages("/step", body, ANSWER_ROLES)
    if not done and not messages:
        raise _invalid("/step", "messages", "must be non-empty, or done must be true")
    metrics = body.get("metrics") or {}
    if not isinstance(metrics, dict):
        raise _invalid("/step", "metrics", "must be a mapping from names to numbers")
    return Observation(
        messages=messages,
        done=done,
        reward=_number("reward", body.get("reward", 0.0)),
        metrics={str(name): _number(f"metrics.{name}", value) for name, value in metrics.items()},
    )


def read_health(body: Mapping[str, Any]) -> Health:
    """The answer to `/health`; raises EnvironmentFaultError."""
    roles = body.get("roles", list(ANSWER_ROLES))
    if not isinstance(roles, list) or not roles or not set(roles) <= set(ANSWER_ROLES):
        raise _invalid("/health", "roles", f"must be a list of {' and '.join(ANSWER_ROLES)}")
    capacity = body.get("capacity")
    if capacity is not None and (not isinstance(capacity, int) or capacity < 1):
        raise _invalid("/health", "capacity", "must be a positive integer")
    return Health(tuple(roles), capacity)


def _messages(path: str, body: Mapping[str, Any], roles: tuple[str, ...]) -> tuple[Message, ...]:
    given = body.get("messages") or []
    if not isinstance(given, list):
        raise _invalid(path, "messages", "must be a list of {role, content}")
    return tuple(_message(path, item, roles) for item in given)


def _message(path: str, item: Any, roles: tuple[str, ...]) -> Message:
    if not isinstance(item, dict) or not isinstance(item.get("content"), str):
        raise _invalid(path, "messages", "must be a list of {role, content} with texts")
    if item.get("role") not in roles:
        must = f"must be one of {', '.join(roles)}, is {item.get('role')!r}"
        raise _invalid(path, "messages.role", must)
    extra = {key: value for key, value in item.items() if key not in ("role", "content")}
    return Message(item["role"], item["content"], extra)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _invalid("/step", name, f"must be a finite number, is {value!r}")
    return float(value)


def _invalid(path: str, field_: str, must: str) -> EnvironmentFaultError:
    return EnvironmentFaultError(Reason.INVALID, f"{path}: {field_} {must}")
