"""The trainer's metrics: one catalogue for the journal, Prometheus and the trackers."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import NamedTuple

from ..events import CheckpointReport, EvaluationReport, StepReport
from .metric import Kind, Metric, Section, counter, gauge, in_section

EVALUATION_ACCURACY = "grpo_eval_accuracy"
EVALUATION_PASS = "grpo_eval_pass_at_k"
EVALUATION_METRICS = frozenset({EVALUATION_ACCURACY, EVALUATION_PASS})

METRICS: tuple[Metric, ...] = (
    *in_section(
        Section.TRAIN,
        gauge("grpo_step", "Optimizer steps done.", lambda r: r.step),
        gauge("grpo_total_steps", "Planned optimizer steps of the run.", lambda r: r.total_steps),
        gauge("grpo_episode", "Current pass over the data set, from 0.", lambda r: r.episode),
        gauge("grpo_loss", "Loss of the step.", lambda r: r.sums.loss),
        gauge(
            "grpo_kl",
            "KL divergence from the reference policy per token, estimated by klForm.",
            lambda r: r.sums.per_token(r.sums.kl),
        ),
        gauge(
            "grpo_entropy",
            "Mean entropy of the policy in nats per token.",
            lambda r: r.sums.per_token(r.sums.entropy),
        ),
        gauge(
            "grpo_clip_ratio",
            "Share of tokens whose importance ratio was clipped.",
            lambda r: {
                "low": r.sums.per_token(r.sums.clipped_low),
                "high": r.sums.per_token(r.sums.clipped_high),
            },
            "side",
        ),
        gauge(
            "grpo_bounded_weight_ratio",
            "Share of tokens whose importance weight was truncated or masked.",
            lambda r: r.sums.per_token(r.sums.bounded_weights),
        ),
        gauge(
            "grpo_importance_ratio_mean",
            "Mean importance ratio between the policy and the behaviour policy.",
            lambda r: r.sums.per_token(r.sums.ratio),
        ),
        gauge(
            "grpo_behaviour_kl",
            "KL divergence from the behaviour policy to the policy per token, k3 estimate.",
            lambda r: r.sums.per_token(r.sums.behaviour_kl),
        ),
        gauge(
            "grpo_log_importance_ratio",
            "Standard deviation over tokens, and largest size, of the log of the importance ratio.",
            lambda r: {"std": r.sums.log_ratio_std, "max": r.sums.max_log_ratio},
            "statistic",
        ),
        gauge(
            "grpo_effective_sample_ratio",
            "Effective sample size of the importance ratios, as a share of the tokens.",
            lambda r: r.sums.effective_sample_share,
        ),
        counter(
            "grpo_nonfinite_steps_total",
            "Steps without an update, because their gradients were not finite.",
            lambda r: float(r.skipped),
            per_step=True,
        ),
        counter(
            "grpo_nonfinite_logprobs_total",
            "Masked because the engine reported no finite log-probability.",
            lambda r: {
                "completions": r.statistics.nonfinite_samples,
                "tokens": r.statistics.nonfinite_tokens,
            },
            "unit",
            per_step=True,
        ),
        gauge("grpo_gradient_norm", "Gradient norm before clipping.", lambda r: r.gradient_norm),
        gauge("grpo_learning_rate", "Learning rate of the step.", lambda r: r.learning_rate),
    ),
    *in_section(
        Section.ROLLOUT,
        gauge(
            "grpo_reward_mean",
            "Mean reward of the step's completions.",
            lambda r: r.statistics.reward_mean,
        ),
        gauge(
            "grpo_reward_part_mean",
            "Mean of each part of the reward, before its weight.",
            lambda r: r.statistics.reward_parts,
            "part",
        ),
        gauge(
            "grpo_accuracy_mean",
            "Share of the step's completions with a correct answer.",
            lambda r: r.statistics.accuracy_mean,
        ),
        gauge(
            "grpo_format_accuracy_mean",
            "Share of the step's completions in the required format.",
            lambda r: r.statistics.format_accuracy_mean,
        ),
        gauge(
            "grpo_response_tokens_mean",
            "Mean length of the step's completions in tokens.",
            lambda r: r.statistics.response_tokens_mean,
        ),
        counter(
            "grpo_groups_total",
            "Prompts by outcome.",
            lambda r: asdict(r.pipeline.groups),
            "outcome",
        ),
        counter(
            "grpo_scoring_errors_total",
            "Completions that could not be scored.",
            lambda r: r.pipeline.scoring_errors,
            "reason",
        ),
    ),
    *in_section(
        Section.EVAL,
        gauge(EVALUATION_ACCURACY, "Accuracy of the newest evaluation.", label="dataset"),
        gauge(
            EVALUATION_PASS,
            "Share of rows of the newest evaluation with a right completion among all samples of "
            "the row; only with several samples.",
            label="dataset",
        ),
    ),
    *in_section(
        Section.PERF,
        counter(
            "grpo_samples_total",
            "Completions of trained groups.",
            lambda r: r.statistics.samples,
            per_step=True,
        ),
        counter(
            "grpo_tokens_total",
            "Tokens of trained groups: each prompt once, and all completions.",
            lambda r: {
                "prompt": r.statistics.prompt_tokens,
                "response": r.statistics.response_tokens,
            },
            "kind",
            per_step=True,
        ),
        gauge(
            "grpo_buffer_depth", "Scored groups in the buffer.", lambda r: r.pipeline.buffer_depth
        ),
        gauge(
            "grpo_buffer_capacity",
            "Maximum number of scored groups in the buffer.",
            lambda r: r.pipeline.buffer_capacity,
        ),
        Metric(
            "grpo_staleness_versions",
            Kind.HISTOGRAM,
            "Weight versions between sampling and training, per group.",
            lambda r: r.staleness_mean,
        ),
        gauge(
            "grpo_consumer_idle_ratio",
            "Share of the step's wall time that consumers waited for data.",
            lambda r: r.consumer_idle_ratio,
        ),
        gauge(
            "grpo_producer_idle_ratio",
            "Share of the step's wall time that producers were idle.",
            lambda r: r.pipeline.producer_idle_ratio,
        ),
        counter(
            "grpo_phase_seconds_total",
            "Wall time by phase of the training loop.",
            lambda r: r.phase_seconds,
            "phase",
            per_step=True,
        ),
        gauge("grpo_weight_version", "Newest published weight version.", lambda r: r.step),
        gauge(
            "grpo_weight_publish_seconds",
            "Time to publish the newest weights.",
            lambda r: r.pipeline.publish_seconds,
        ),
        gauge(
            "grpo_weight_apply_seconds",
            "Time for producers to apply the newest weights.",
            lambda r: r.pipeline.apply_seconds,
        ),
        gauge(
            "grpo_weight_delta_ratio",
            "Bytes of the newest weights as published, as a share of a full version.",
            lambda r: r.pipeline.delta_share,
        ),
        counter(
            "grpo_weight_differences_total",
            "Weights of a producer that differed from the published ones and were fetched in full.",
            lambda r: r.pipeline.weight_differences,
        ),
        gauge(
            "grpo_engine_mismatch",
            "Mean difference of log-probabilities between trainer and engine at equal weights, of "
            "the producer with the largest one, in nats per token.",
            lambda r: r.pipeline.engine_mismatch,
        ),
        gauge("grpo_checkpoint_step", "Step of the newest checkpoint."),
        gauge("grpo_checkpoint_seconds", "Time to write the newest checkpoint."),
        counter("grpo_restarts_total", "Restarts of workers.", label="role"),
    ),
)
"""The metrics that Prometheus scrapes."""

EXTRAS: tuple[Metric, ...] = (
    *in_section(
        Section.ROLLOUT,
        gauge(
            "reward_std",
            "Mean over groups of the standard deviation of the reward.",
            lambda r: r.statistics.reward_std,
        ),
        gauge(
            "zero_std_fraction",
            "Share of groups without a learning signal.",
            lambda r: r.statistics.zero_std_fraction,
        ),
        gauge(
            "truncated_fraction",
            "Share of completions truncated at the token limit.",
            lambda r: r.statistics.truncated_fraction,
        ),
    ),
    *in_section(
        Section.PERF,
        gauge("seconds", "Wall time since the end of the previous step.", lambda r: r.seconds),
    ),
)
"""Metrics of the journal and the trackers only."""

STEP_METRICS: tuple[Metric, ...] = tuple(m for m in METRICS + EXTRAS if m.read is not None)
LABELS: Mapping[str, str] = {m.name: m.label for m in METRICS if m.label is not None}
_UNLABELLED = frozenset(m.name for m in METRICS + EXTRAS if m.label is None)


class Series(NamedTuple):
    """A metric and the value of its label; in text the label is a suffix: `grpo_clip_ratio_low`."""

    name: str
    label: str | None = None

    def __str__(self) -> str:
        return self.name if self.label is None else f"{self.name}_{self.label}"

    @classmethod
    def parse(cls, text: str) -> "Series | None":
        """Inverse of `str`; None for a text that is no series of the catalogue."""
        if text in _UNLABELLED:
            return cls(text)
        for name in LABELS:
            if text.startswith(f"{name}_"):
                return cls(name, text.removeprefix(f"{name}_"))
        return None


class MetricValues:
    """The current value of every series."""

    def __init__(self) -> None:
        self._values: dict[Series, float] = {}

    @property
    def current(self) -> Mapping[Series, float]:
        return self._values

    def restore(self, values: Mapping[Series, float]) -> None:
        """Continue from the values of an earlier process; values of this process win."""
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
        self._values[Series(EVALUATION_ACCURACY, report.dataset)] = report.accuracy
        if report.pass_at:
            newest = report.pass_at[max(report.pass_at)]
            self._values[Series(EVALUATION_PASS, report.dataset)] = newest

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
