"""What the driver reports: plain records, one per event. No torch."""

from dataclasses import dataclass, field
from enum import StrEnum

from .algorithm.batching import StepStatistics
from .algorithm.totals import LossSums


class Outcome(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """Prompts by outcome since the start of the run."""

    trained: int = 0
    filtered: int = 0
    dropped: int = 0
    requeued: int = 0


@dataclass(frozen=True, slots=True)
class PipelineState:
    """Buffer, producers and weights at the end of a step."""

    buffer_depth: int
    """Scored groups in the buffer."""
    buffer_capacity: int
    groups: GroupCounts
    producer_idle_ratio: float
    """Share of the step's wall time that producers were idle."""
    publish_seconds: float | None
    """Time to publish the newest weights; None while it is unknown, likewise below."""
    apply_seconds: float | None
    engine_mismatch: float | None = None
    """Of the newest check of the engines, in nats per token."""
    scoring_errors: dict[str, int] = field(default_factory=dict)
    """Completions without a score since the start of the run, by reason."""
    delta_share: float | None = None
    """Bytes of the newest version over those of a full one; None without deltas."""
    weight_differences: int = 0
    """Times that a producer's weights differed from those published, since the run's start."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """One optimizer step."""

    step: int
    """Steps done, this one included; also the newest weight version."""
    total_steps: int
    episode: int
    seconds: float
    """Wall time since the end of the previous step."""
    phase_seconds: dict[str, float]
    """Wall time by phase; report and checkpoint are those of the previous step."""
    statistics: StepStatistics
    sums: LossSums
    gradient_norm: float
    learning_rate: float
    staleness: tuple[int, ...]
    """Weight versions between sampling and training, of each group."""
    pipeline: PipelineState
    prompts: int = 0
    """Prompts of the whole run, each counted once per episode; 0 where unknown."""
    skipped: bool = False
    """Whether the weights are as before, because gradients were not finite."""
    note: str = ""
    """Why a step was empty, small or skipped."""

    @property
    def consumer_idle_ratio(self) -> float:
        """Share of the wall time since the previous step that consumers waited for data."""
        return min(1.0, self.phase_seconds["take"] / self.seconds) if self.seconds else 0.0

    @property
    def share_done(self) -> float:
        """Progress of the run by steps or by prompts, whichever is larger: either ends it."""
        groups = self.pipeline.groups
        finished = groups.trained + groups.filtered + groups.dropped
        by_prompts = finished / self.prompts if self.prompts else 0.0
        by_steps = self.step / self.total_steps if self.total_steps else 0.0
        return min(1.0, max(by_steps, by_prompts))

    @property
    def staleness_mean(self) -> float:
        return sum(self.staleness) / len(self.staleness) if self.staleness else 0.0


@dataclass(frozen=True, slots=True)
class EvaluatedSample:
    """One completion of an evaluation."""

    source: str
    prompt: str
    completion: str
    answer: str | None
    reward: float | None
    accuracy: float
    format_accuracy: float
    response_tokens: int
    finish_reason: str
    reward_parts: dict[str, float] = field(default_factory=dict)
    """Value of each named part of the reward, before its weight."""


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """One evaluation set at one step. Completions without a score do not count in the accuracy."""

    step: int
    dataset: str
    accuracy: float
    format_accuracy: float
    response_tokens_mean: float
    seconds: float
    samples: tuple[EvaluatedSample, ...]
    samples_per_row: int = 1
    standard_error: float | None = None
    """Of the accuracy; None with fewer than two rows."""
    pass_at: dict[int, float] = field(default_factory=dict)
    """pass@k by k; empty for one sample of each row."""


@dataclass(frozen=True, slots=True)
class LoggedSample:
    """One completion of a trained group."""

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
    reward_parts: dict[str, float] = field(default_factory=dict)
    """Value of each named part of the reward, before its weight."""
    tokens: list[str] | None = None
    """Text of each token, with `rollouts.tokens`."""
    log_ratios: list[float | None] | None = None
    """Log of each token's importance ratio, None for a token off the loss; None where no forward
    pass saw the completion."""


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    step: int
    path: str
    seconds: float


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """Workers that are ready, and their desired number."""

    producers_ready: int
    producers_desired: int
    consumers_ready: int
    consumers_desired: int
    producers_wanted: int | None = None
    """Number of producers that autoscaling requests; None where it is fixed."""


@dataclass(frozen=True, slots=True)
class BestCheckpoint:
    """The checkpoint with the highest evaluation accuracy."""

    step: int
    path: str
    accuracy: float
    """Mean over the evaluation sets."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The totals of a run, written at every exit as `summary.json`."""

    outcome: Outcome
    message: str
    steps: int
    total_steps: int
    first_accuracy: dict[str, float]
    """By evaluation set; without evaluations, that of the first step's rollouts as `train`."""
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
    """max(generation time, training time) / train_seconds; 1 is a pipeline without a bubble."""
    consumer_idle_ratio: float
    newest_checkpoint: str | None
    run_directory: str
    scored_samples: int = 0
    """Completions with a score, of `samples`."""
    scoring_errors: dict[str, int] = field(default_factory=dict)
    """Completions without a score, of all groups, by reason."""
    best_checkpoint: BestCheckpoint | None = None
