"""Records that cross between driver, producers and consumers: numpy and plain values, no torch.

They are all that two environments with different libraries have to agree on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: str
    content: str
    extra: dict[str, Any] = field(default_factory=dict, hash=False)
    """Other keys, such as `tool_calls`, for the chat template."""


@dataclass(frozen=True, slots=True)
class TestCases:
    """Inputs and expected outputs of a program; `function` None: standard input and output."""

    __test__ = False

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    function: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A checked row of a data set. `answer` or `tests` is given, as the reward needs it."""

    source: str
    """Where it stands, for messages: `file.jsonl row 3`."""
    messages: tuple[Message, ...]
    answer: str | None = None
    tests: TestCases | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    """The row as read, for custom rewards."""
    prefix: str = ""
    """How the chat template opens the completion, such as `<assistant><think>`."""
    rendered: str = ""
    """The prompt with the chat template, for the rewards that read it."""

    @property
    def question(self) -> str:
        """The text of the last message; empty while an environment has not opened it."""
        return self.messages[-1].content if self.messages else ""


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """A row as the model sees it."""

    row: Row
    token_ids: Ints
    """[P] with the chat template and the generation prompt applied; empty where an environment
    opens the conversation."""

    @property
    def environment_row(self) -> dict[str, Any] | None:
        """What an environment opens the conversation with; None where it is open."""
        return None if len(self.token_ids) else self.row.columns


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn."""

    temperature: float
    """0 is greedy."""
    top_k: int | None
    """None is off."""
    top_p: float
    max_new_tokens: int
    stop_strings: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    """Beside the model's own end-of-sequence tokens."""


class FinishReason(StrEnum):
    STOP = "stop"
    """An end-of-sequence token or a stop string was sampled."""
    LENGTH = "length"
    """The completion hit the token limit."""
    ABORT = "abort"


@dataclass(frozen=True, slots=True, eq=False)
class GenerationRequest:
    """One prompt to be answered `num_samples` times."""

    request_id: str
    prompt_ids: Ints
    """[P]"""
    num_samples: int
    seed: int
    """Completions depend on weights, prompt, sampling and seed, not on the rest of the batch."""
    sampling: SamplingParams
    row: dict[str, Any] | None = None
    """The row that an environment opens with; None: a single turn behind the prompt."""


@dataclass(frozen=True, slots=True)
class Score:
    """What one completion earned."""

    reward: float | None
    """None where it could not be scored: it then leaves the group's statistics and the loss."""
    format_accuracy: float
    accuracy: float
    """1 for a right answer, before any shaping of the reward."""
    error: str | None = None
    """Reason it could not be scored (`timeout`, `crash`, ...)."""
    parts: dict[str, float] = field(default_factory=dict)
    """Value of each named part that applies, before its weight."""


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """What a completion of several turns has beside its tokens: those of the model and of the
    environment lie in one sequence."""

    sampled: Bools
    """[T] tokens that the model drew. The others are observations, which leave the loss."""
    turns: tuple[Message, ...]
    """All turns behind the opening, of either side."""
    score: Score
    """As the environment scored it."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The environment's own, by name."""
    failure: str = ""
    """What the environment failed with, where the score is None."""


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """One finished completion, or one episode."""

    token_ids: Ints
    """[T] as sampled, with the end-of-sequence token where one was drawn; never re-encoded."""
    logprobs: Floats
    """[T] log-probability of each token in the distribution it was drawn from; NaN where the
    model did not draw it."""
    versions: Ints
    """[T] weight version that drew each token; of an observation, that of the turn before it."""
    text: str
    """Decoded without special tokens; of an episode, its turns under headings."""
    finish_reason: FinishReason
    episode: Episode | None = None
    """None: a single turn, all tokens of which the model drew."""

    @property
    def sampled_tokens(self) -> int:
        """Number of tokens that the model drew."""
        if self.episode is None:
            return len(self.token_ids)
        return int(np.count_nonzero(self.episode.sampled))

    @property
    def counted(self) -> Bools:
        """[T] tokens that count in the loss: sampled, with a finite log-probability."""
        finite: Bools = np.isfinite(self.logprobs)
        return finite if self.episode is None else finite & self.episode.sampled


@dataclass(frozen=True, slots=True, eq=False)
class Opening:
    """How an environment opens the episodes of a group."""

    token_ids: Ints
    """[P] with the chat template and the generation prompt applied."""
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """All completions to one request."""

    request_id: str
    completions: tuple[Completion, ...]
    opening: Opening | None = None
    """None: the prompt of the request."""

    @property
    def oldest_version(self) -> int:
        """The oldest weight version that drew any of its tokens."""
        return int(np.concatenate([c.versions for c in self.completions]).min())

    def opened(self, prompt: Prompt) -> Prompt:
        """The prompt that its completions continue, given that of its request."""
        if self.opening is None:
            return prompt
        return Prompt(replace(prompt.row, messages=self.opening.messages), self.opening.token_ids)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredGroup:
    """A prompt's completions with their scores: the unit of the buffer."""

    prompt: Prompt
    rollout: Rollout
    scores: tuple[Score, ...]

    @property
    def version(self) -> int:
        """The oldest weight version that drew any of its tokens."""
        return self.rollout.oldest_version

    @property
    def accuracy(self) -> float:
        """Mean accuracy of the completions that could be scored, 0 when none could."""
        scored = [s.accuracy for s in self.scores if s.reward is not None]
        return sum(scored) / len(scored) if scored else 0.0
