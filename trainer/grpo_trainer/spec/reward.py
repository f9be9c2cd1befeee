"""How completions are scored: one reward, or several weighted parts."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from .base import NonEmptyStr, NonNegativeFloat, PositiveFloat, PositiveInt, Record
from .kubernetes import PART_NAME, URL, VariableName
from .templates import Pattern, Template


class RewardType(StrEnum):
    THINK_ANSWER_TAGS = "think_answer_tags"
    BOXED = "boxed"
    CODE = "code"
    CUSTOM = "custom"
    ENVIRONMENT = "environment"
    HTTP = "http"
    JUDGE = "judge"


DEFAULT_TYPE = RewardType.THINK_ANSWER_TAGS
RIGHT_REWARD = 10.0
"""Reward of a right completion where a built-in type is the whole reward."""
WRONG_REWARD = 0.0
_BUILT_IN = frozenset({RewardType.THINK_ANSWER_TAGS, RewardType.BOXED, RewardType.CODE})


class CustomRewardSpec(Record):
    module: NonEmptyStr
    """Importable module, or a .py file on the volume."""
    function: NonEmptyStr = "reward"
    """Function of the module: `reward(completion: str, row: dict) -> float | dict`, which may be
    asynchronous."""
    batch: bool = False
    """Call it once for a group: `reward(completions: list[str], row: dict) -> list`."""


class EndpointSpec(Record):
    """An HTTP service that scores; the driver is its client."""

    url: Annotated[str, Field(pattern=URL, max_length=2048)]
    """Address of the service."""
    api_key_env: VariableName | None = None
    """Environment variable of the driver with the key, sent as a bearer token; none when absent."""
    max_concurrent: PositiveInt = 64
    """Requests at a time."""


class HttpRewardSpec(EndpointSpec):
    """A reward server with the protocol of OpenRLHF, one request for each group."""


class JudgeSpec(EndpointSpec):
    """A model behind an OpenAI-compatible API, asked once for each completion.

    `url` ends before `/chat/completions`, as in `http://judge:8000/v1`.
    """

    model: NonEmptyStr
    """Name of the model at the endpoint."""
    prompt: Template
    """Message to the judge, with `{prompt}`, `{completion}`, `{answer}` and the row's columns."""
    pattern: Pattern
    """Regular expression of the score in the judge's message: its group, of the last match."""
    max_score: PositiveFloat = 1.0
    """Score that counts as 1; 0 counts as 0."""
    scores: dict[NonEmptyStr, float] = Field(default_factory=dict)
    """Score of each text that the pattern may find, where it does not find numbers."""
    temperature: NonNegativeFloat = 0.0
    """Sampling temperature of the judge."""
    max_tokens: PositiveInt = 1024
    """Maximum length of the judge's message in tokens."""


class RewardPartSpec(Record):
    name: Annotated[str, Field(pattern=PART_NAME, max_length=63)]
    """Label of the part in metrics and rollouts."""
    type: RewardType
    """How this part scores a completion, from 0 to 1 for the built-in types."""
    weight: float = 1.0
    """Factor of this part in the reward; 0 only records it."""
    custom: CustomRewardSpec | None = None
    """A function of your own; only with type custom."""
    http: HttpRewardSpec | None = None
    """A reward server; only with type http."""
    judge: JudgeSpec | None = None
    """A model that scores; only with type judge."""
    timeout_seconds: PositiveFloat | None = None
    """Deadline of this part for one completion; the reward's when absent."""


class RewardSpec(Record):
    type: RewardType = DEFAULT_TYPE
    """How a completion is scored, where the reward is a single part."""
    custom: CustomRewardSpec | None = None
    """A function of your own; only with type custom."""
    http: HttpRewardSpec | None = None
    """A reward server; only with type http."""
    judge: JudgeSpec | None = None
    """A model that scores; only with type judge."""
    parts: Annotated[tuple[RewardPartSpec, ...], Field(max_length=16)] = ()
    """The reward as a weighted sum, in place of `type`. The first part gives accuracy, system
    prompt and stop strings."""
    system_prompt: str | None = None
    """System message of every prompt; one per reward type when absent, none when empty."""
    allow_unconfined: bool = False
    """Let a code reward run programs where the kernel cannot keep them from files: they can read
    and write what the trainer can."""
    timeout_seconds: PositiveFloat = 30.0
    """Deadline for scoring one completion; a completion that exceeds it counts as a scoring
    error."""

    @property
    def main_type(self) -> RewardType:
        """The type of the part that gives accuracy."""
        return self.parts[0].type if self.parts else self.type


@dataclass(frozen=True, slots=True)
class RewardPart:
    """A part with every default filled in."""

    name: str
    field: str
    """Its path in the manifest, for messages."""
    type: RewardType
    weight: float
    custom: CustomRewardSpec | None
    http: HttpRewardSpec | None
    judge: JudgeSpec | None
    timeout_seconds: float
    timeout_field: str
    allow_unconfined: bool
    allow_unconfined_field: str


def resolve_reward(spec: RewardSpec, field: str = "spec.reward") -> tuple[RewardPart, ...]:
    """The parts of a reward; a single type is one part, named after its type.

    `field` is the path of the reward in the manifest.
    """

    def resolved(part: RewardPartSpec, path: str) -> RewardPart:
        own = part.timeout_seconds
        return RewardPart(
            name=part.name,
            field=path,
            type=part.type,
            weight=part.weight,
            custom=part.custom,
            http=part.http,
            judge=part.judge,
            timeout_seconds=spec.timeout_seconds if own is None else own,
            timeout_field=f"{field if own is None else path}.timeoutSeconds",
            allow_unconfined=spec.allow_unconfined,
            allow_unconfined_field=f"{field}.allowUnconfined",
        )

    if spec.parts:
        return tuple(resolved(p, f"{field}.parts[{i}]") for i, p in enumerate(spec.parts))
    weight = RIGHT_REWARD if spec.type in _BUILT_IN else 1.0
    whole = RewardPartSpec(
        name=spec.type,
        type=spec.type,
        weight=weight,
        custom=spec.custom,
        http=spec.http,
        judge=spec.judge,
    )
    return (resolved(whole, field),)
