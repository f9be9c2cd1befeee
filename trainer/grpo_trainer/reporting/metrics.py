"""The trainer's metrics: one catalogue that the journal, Prometheus and the trackers read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ..events import CheckpointReport, EvaluationReport, StepReport

Reading = float | None | Mapping[str, float]
"""A value, none this time, or one value per label."""
Reader = Callable[[StepReport], Reading]


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric under its Prometheus name."""

    name: str
    kind: Kind
    help: str
    read: Reader | None = None
    """Its value in a step's report; None when other events set it."""
    label: str | None = None
    """Name of its one label."""
    per_step: bool = False
    """A counter whose reading is the step's own share and not the total."""


def _gauge(name: str, text: str, read: Reader | None = None, label: str | None = None) -> Metric:
    return Metric(name, Kind.GAUGE, text, read, label)


def _counter(
    name: str,
    text: str,
    read: Reader | None = None,
    label: str | None = None,
    per_step: bool = False,
) -> Metric:
    return Metric(name, Kind.COUNTER, text, read, label, per_step)


METRICS: tuple[Metric, ...] = (
    _gauge("grpo_step", "Optimizer steps done.", lambda r: r.step),
    _gauge("grpo_total_steps", "Optimizer steps of the whole run.", lambda r: r.total_steps),
    _gauge("grpo_episode", "Current pass over the data set.", lambda r: r.episode),
    _gauge("grpo_reward_mean", "Mean reward of the step's samples.", lambda r: r.reward_mean),
    _gauge("grpo_accuracy_mean", "Share of right answers.", lambda r: r.accuracy_mean),
    _gauge(
        "grpo_format_accuracy_mean",
        "Share of completions in the required format.",
        lambda r: r.format_accuracy_mean,
    ),
    _gauge(
        "grpo_response_tokens_mean",
        "Mean completion length of the step in tokens.",
        lambda r: r.response_tokens_mean,
    ),
    _counter("grpo_samples_total", "Samples trained on.", lambda r: r.samples, per_step=True),
    _counter(
        "grpo_tokens_total",
        "Tokens of the samples trained on.",
        lambda r: {"prompt": r.prompt_tokens, "response": r.response_tokens},
        "kind",
        per_step=True,
    ),
    _counter(
        "grpo_groups_total",
        "Prompts by fate.",
        lambda r: {
            "trained": r.groups.trained,
            "filtered": r.groups.filtered,
            "dropped": r.groups.dropped,
            "requeued": r.groups.requeued,
        },
        "outcome",
    ),
    _gauge("grpo_buffer_depth", "Scored groups that wait in the buffer.", lambda r: r.buffer_depth),
    _gauge("grpo_buffer_capacity", "Scored groups that may wait.", lambda r: r.buffer_capacity),
    Metric(
        "grpo_staleness_versions",
        Kind.HISTOGRAM,
        "Weight versions between sampling and training, per group.",
        lambda r: r.staleness_mean,
    ),
    _gauge(
        "grpo_consumer_idle_ratio",
        "Share of the step's wall time that consumers waited for data.",
        lambda r: r.consumer_idle_ratio,
    ),
    _gauge(
        "grpo_producer_idle_ratio",
        "Share of the step's wall time that producers waited.",
        lambda r: r.producer_idle_ratio,
    ),
    _counter(
        "grpo_phase_seconds_total",
        "Wall time by phase of the driver's loop.",
        lambda r: r.phase_seconds,
        "phase",
        per_step=True,
    ),
    _gauge("grpo_weight_version", "Newest published weight version.", lambda r: r.weight_version),
    _gauge(
        "grpo_weight_publish_seconds",
        "Time to publish the newest weights.",
        lambda r: r.publish_seconds,
    ),
    _gauge(
        "grpo_weight_apply_seconds",
        "Time for producers to load the newest weights.",
        lambda r: r.apply_seconds,
    ),
    _gauge("grpo_loss", "Loss of the step.", lambda r: r.loss),
    _gauge("grpo_kl", "KL divergence to the reference model, k3 estimate.", lambda r: r.kl),
    _gauge("grpo_entropy", "Mean entropy of the policy in nats per token.", lambda r: r.entropy),
    _gauge(
        "grpo_clip_ratio",
        "Share of tokens whose ratio was clipped.",
        lambda r: {"low": r.clip_ratio_low, "high": r.clip_ratio_high},
        "side",
    ),
    _gauge(
        "grpo_importance_ratio_mean",
        "Mean ratio between the training and the sampling policy.",
        lambda r: r.importance_ratio_mean,
    ),
    _gauge("grpo_gradient_norm", "Gradient norm before clipping.", lambda r: r.gradient_norm),
    _gauge("grpo_learning_rate", "Learning rate of the step.", lambda r: r.learning_rate),
    _gauge("grpo_eval_accuracy", "Accuracy of the last evaluation.", label="dataset"),
    _gauge("grpo_checkpoint_step", "Step of the newest checkpoint."),
    _gauge("grpo_checkpoint_seconds", "Time to write the newest checkpoint."),
    _counter(
        "grpo_scoring_errors_total",
        "Completions that could not be scored.",
        lambda r: r.scoring_errors,
        "reason",
    ),
    _counter("grpo_restarts_total", "Workers that were restarted.", label="role"),
)
"""What Prometheus shows."""

EXTRAS: tuple[Metric, ...] = (
    _gauge("seconds", "Wall time since the previous step's end.", lambda r: r.seconds),
    _gauge("reward_std", "Mean of the groups' standard deviations.", lambda r: r.reward_std),
    _gauge("zero_std_fraction", "Share of groups without signal.", lambda r: r.zero_std_fraction),
    _gauge("truncated_fraction", "Share of completions cut off.", lambda r: r.truncated_fraction),
)
"""What only the journal and the trackers keep."""

STEP_METRICS: tuple[Metric, ...] = tuple(m for m in METRICS + EXTRAS if m.read is not None)
LABELS: Mapping[str, str] = {m.name: m.label for m in METRICS if m.label is not None}


class Series(NamedTuple):
    """A metric, and the value of its label where it has one: `grpo_clip_ratio{side=low}`."""

    name: str
    label: str | None = None

    def __str__(self) -> str:
        if self.label is None:
            return self.name
        return f"{self.name}{{{LABELS[self.name]}={self.label}}}"

    @classmethod
    def parse(cls, text: str) -> "Series":
        """Inverse of `str`; label values may hold any character."""
        name, brace, rest = text.partition("{")
        return cls(name, rest.partition("=")[2].removesuffix("}")) if brace else cls(name)


class MetricValues:
    """The current value of every series: what a scrape after the last event shows."""

    def __init__(self) -> None:
        self._values: dict[Series, float] = {}

    @property
    def current(self) -> Mapping[Series, float]:
        return self._values

    def restore(self, values: Mapping[Series, float]) -> None:
        """Continue from an earlier process's values; what this process knows itself stands."""
        self._values = {**values, **self._values}

    def begin(self, step: int, total_steps: int) -> None:
        self._values[Series("grpo_step")] = step
        self._values[Series("grpo_total_steps")] = total_steps

    def step(self, report: StepReport) -> None:
        for metric in STEP_METRICS:
            for series, value in _readings(metric, report):
                before = self._values.get(series, 0.0) if metric.per_step else 0.0
                self._values[series] = before + value

    def evaluation(self, report: EvaluationReport) -> None:
        self._values[Series("grpo_eval_accuracy", report.dataset)] = report.accuracy

    def checkpoint(self, report: CheckpointReport) -> None:
        self._values[Series("grpo_checkpoint_step")] = report.step
        self._values[Series("grpo_checkpoint_seconds")] = report.seconds

    def restart(self, role: str) -> None:
        series = Series("grpo_restarts_total", role)
        self._values[series] = self._values.get(series, 0.0) + 1


def _readings(metric: Metric, report: StepReport) -> list[tuple[Series, float]]:
    assert metric.read is not None
    reading = metric.read(report)
    if reading is None:
        return []
    if isinstance(reading, Mapping):
        return [(Series(metric.name, label), value) for label, value in reading.items()]
    return [(Series(metric.name), reading)]
