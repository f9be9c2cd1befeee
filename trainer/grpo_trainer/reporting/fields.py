"""The text of reports on the terminal: pairs of a label and a value."""

from collections.abc import Mapping
from datetime import timedelta

from ..events import CheckpointReport, EvaluationReport, Outcome, StepReport, Summary, WorkerReport
from ..spec import GRPOJob, Progress
from .paths import RunPaths

Fields = list[tuple[str, str]]


def step_fields(report: StepReport, progress: Progress) -> Fields:
    """The values of a step."""
    metrics, eta = progress.metrics, progress.progress.eta_seconds
    statistics, pipeline = report.statistics, report.pipeline
    return [
        ("step", f"{report.step}/{report.total_steps}"),
        ("reward", f"{statistics.reward_mean:.3f}"),
        ("accuracy", f"{statistics.accuracy_mean:.3f}"),
        ("scored", scored(statistics.scored_samples, statistics.samples, statistics.unscored)),
        ("loss", f"{report.sums.loss:.4f}"),
        ("tokens", f"{statistics.response_tokens_mean:.1f}"),
        ("samples/s", number(metrics.samples_per_second)),
        ("tokens/s", number(metrics.tokens_per_second)),
        ("buffer", f"{pipeline.buffer_depth}/{pipeline.buffer_capacity}"),
        ("staleness", f"{report.staleness_mean:.2f}"),
        ("idle", f"{report.consumer_idle_ratio:.1%}"),
        ("eta", "-" if eta is None else duration(eta)),
    ]


def summary_fields(summary: Summary, max_steps: int | None) -> Fields:
    """The totals of a run. The error of a failed run is left out: the program prints it."""
    outcome = str(summary.outcome)
    if summary.message and summary.outcome is not Outcome.FAILED:
        outcome = f"{outcome}: {summary.message}"
    fields = [("outcome", outcome), ("steps", _steps(summary, max_steps))]
    if summary.first_reward is not None and summary.last_reward is not None:
        fields.append(("reward", f"{summary.first_reward:.3f} -> {summary.last_reward:.3f}"))
    for name, last in summary.last_accuracy.items():
        first = summary.first_accuracy.get(name)
        fields.append((f"accuracy on {name}", f"{number(first, 3)} -> {last:.3f}"))
    errors = summary.scoring_errors
    fields += [
        ("samples", f"{summary.samples} ({summary.samples_per_second:.1f}/s)"),
        ("scored", scored(summary.scored_samples, summary.samples, errors)),
        ("wall time", duration(summary.wall_seconds)),
        ("efficiency", f"{summary.efficiency:.1%}"),
        ("consumers idle", f"{summary.consumer_idle_ratio:.1%}"),
        ("newest checkpoint", summary.newest_checkpoint or "none"),
    ]
    best = summary.best_checkpoint
    if best is not None:
        fields.append(("best checkpoint", f"{best.path} (accuracy {best.accuracy:.3f})"))
    fields.append(("run directory", summary.run_directory))
    return fields


def closing_hints(summary: Summary, job: GRPOJob, layout: RunPaths) -> Fields:
    """What to do next with a run that has ended: commands and paths."""
    hints = []
    if summary.outcome is not Outcome.SUCCEEDED and summary.newest_checkpoint is not None:
        hints.append(("resume", resume_command(layout)))
    if summary.steps > 0:
        hints.append(("show", f"grpo show {layout.root}"))
    if any(layout.rollouts.glob("step_*.jsonl")):
        hints.append(("rollouts", str(layout.rollouts)))
    if job.spec.tracking.tensorboard and layout.tensorboard.exists():
        hints.append(("charts", f"tensorboard --logdir {layout.tensorboard}"))
    return hints


def resume_command(layout: RunPaths) -> str:
    return f"grpo run --run-dir {layout.root}"


def stopping(layout: RunPaths) -> str:
    """The message of the first request to stop."""
    return (
        "stopping after the current step, with a checkpoint; Ctrl-C again stops at once; "
        f"to resume: {resume_command(layout)}"
    )


def short_data(total_steps: int, max_steps: int | None) -> str | None:
    """A message if the data ends before maxSteps, else None."""
    if max_steps is None or total_steps >= max_steps:
        return None
    return (
        f"the data is used up after {total_steps} of spec.maxSteps {max_steps} steps; "
        "raise spec.numEpisodes or add data to train longer"
    )


def workers(report: WorkerReport) -> str:
    return (
        f"producers {report.producers_ready}/{report.producers_desired} ready, "
        f"consumers {report.consumers_ready}/{report.consumers_desired} ready"
    )


def evaluation(report: EvaluationReport) -> str:
    return (
        f"evaluation of {report.dataset} at step {report.step}: accuracy {report.accuracy:.3f}"
        f"{_spread(report)} ({len(report.samples)} samples, {report.seconds:.1f} s)"
    )


def _spread(report: EvaluationReport) -> str:
    """` ± 0.012, pass@8 0.812`, as far as there is any."""
    error = report.standard_error
    text = "" if error is None else f" ± {error:.3f}"
    if report.pass_at:
        k = max(report.pass_at)
        text += f", pass@{k} {report.pass_at[k]:.3f}"
    return text


def checkpoint(report: CheckpointReport) -> str:
    return f"checkpoint of step {report.step} in {report.path} ({report.seconds:.1f} s)"


def scored(count: int, samples: int, reasons: Mapping[str, int]) -> str:
    """`60/64`, with the reasons of what is missing: `60/64 (timeout 4)`."""
    text = f"{count}/{samples}"
    if count >= samples or not reasons:
        return text
    listed = ", ".join(f"{reason} {number}" for reason, number in sorted(reasons.items()))
    return f"{text} ({listed})"


def number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def printable(text: str) -> str:
    """Text that every terminal can encode: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _steps(summary: Summary, max_steps: int | None) -> str:
    text = f"{summary.steps} of {summary.total_steps}"
    if summary.outcome is not Outcome.SUCCEEDED:
        return text
    if summary.steps < summary.total_steps:
        return f"{text} (the data was used up: filtered groups make a run shorter)"
    if max_steps is not None and summary.total_steps < max_steps:
        return f"{text} (the data was used up before maxSteps {max_steps})"
    return text
