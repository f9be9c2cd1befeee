"""What the driver tells its reporters: plain records, one per event."""

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """Prompts by fate since the start of the run."""

    trained: int = 0
    filtered: int = 0
    dropped: int = 0
    requeued: int = 0


@dataclass(frozen=True, slots=True)
class StepReport:
    """One optimizer step. Means are over the step's samples or tokens."""

    step: int
    """Steps done, this one included."""
    total_steps: int
    episode: int
    seconds: float
    """Wall time since the previous step's end."""
    samples: int
    prompt_tokens: int
    response_tokens: int
    reward_mean: float
    reward_std: float
    """Mean of the groups' standard deviations."""
    zero_std_fraction: float
    """Share of groups without signal."""
    accuracy_mean: float
    format_accuracy_mean: float
    response_tokens_mean: float
    truncated_fraction: float
    loss: float
    kl: float
    entropy: float
    clip_ratio_low: float
    clip_ratio_high: float
    importance_ratio_mean: float
    gradient_norm: float
    learning_rate: float
    staleness: tuple[int, ...]
    """Weight versions between sampling and training, of each group."""
    weight_version: int
    buffer_depth: int
    buffer_capacity: int
    consumer_idle_ratio: float
    """Share of the wall time since the previous step that consumers waited for data."""
    producer_idle_ratio: float
    phase_seconds: dict[str, float]
    """take, train, publish, evaluate, report, checkpoint; the last two of the step before."""
    publish_seconds: float | None
    apply_seconds: float | None
    groups: GroupCounts
    prompts: int = 0
    """Of the whole run, each counted once an episode; 0 where it is not known."""
    scoring_errors: dict[str, int] = field(default_factory=dict)
    """Since the start, by reason."""
    note: str = ""
    """Why a step was empty or small."""

    @property
    def share_done(self) -> float:
        """Of the run: its steps or its prompts, whichever ends it sooner."""
        finished = self.groups.trained + self.groups.filtered + self.groups.dropped
        by_prompts = finished / self.prompts if self.prompts else 0.0
        by_steps = self.step / self.total_steps if self.total_steps else 0.0
        return min(1.0, max(by_steps, by_prompts))

    @property
    def staleness_mean(self) -> float:
        return sum(self.staleness) / len(self.staleness) if self.staleness else 0.0


@dataclass(frozen=True, slots=True)
class EvaluatedSample:
    """One completion of an evaluation, each row once."""

    source: str
    prompt: str
    completion: str
    answer: str | None
    reward: float | None
    accuracy: float
    format_accuracy: float
    response_tokens: int
    finish_reason: str


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """One evaluation set at one step."""

    step: int
    dataset: str
    accuracy: float
    format_accuracy: float
    response_tokens_mean: float
    seconds: float
    samples: tuple[EvaluatedSample, ...]


@dataclass(frozen=True, slots=True)
class LoggedSample:
    """One completion of a rollout that was trained on."""

    source: str
    prompt: str
    completion: str
    answer: str | None
    reward: float | None
    accuracy: float
    format_accuracy: float
    advantage: float
    version: int
    response_tokens: int
    finish_reason: str


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    step: int
    path: str
    seconds: float


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """Workers that are up, of those wanted."""

    producers_ready: int
    producers_desired: int
    consumers_ready: int
    consumers_desired: int
    producers_wanted: int | None = None
    """Producers that the run asks for; None where their number is fixed."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in one record, written at every exit as `summary.json`."""

    outcome: Outcome
    message: str
    steps: int
    total_steps: int
    first_accuracy: dict[str, float]
    """Of the first evaluation of each set, else of the first step's rollouts as `train`."""
    last_accuracy: dict[str, float]
    first_reward: float | None
    last_reward: float | None
    samples: int
    wall_seconds: float
    """From the start of the command."""
    train_seconds: float
    """From the first take to the end of the last step."""
    samples_per_second: float
    """Samples over train_seconds."""
    efficiency: float
    """max(generation, training) over train_seconds; 1 is a pipeline without bubble."""
    consumer_idle_ratio: float
    newest_checkpoint: str | None
    run_directory: str
