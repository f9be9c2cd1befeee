"""The run on the terminal: a live panel where there is one, a line per step elsewhere."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..events import (
    CheckpointReport,
    EvaluationReport,
    StepReport,
    Summary,
    WorkerReport,
)
from ..spec import Progress
from .metrics import Series
from .progress import ProgressTracker
from .sink import Sink


def make_display(tracker: ProgressTracker, console: Console) -> Sink:
    """A live panel on a terminal that can redraw, plain lines elsewhere."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveDisplay(tracker, console)
    return PlainDisplay(tracker, console)


class PlainDisplay(Sink):
    """One line per event, for logs."""

    def __init__(self, tracker: ProgressTracker, console: Console) -> None:
        self._tracker = tracker
        self._console = console

    def begin(self, step: int, total_steps: int) -> None:
        self._print(f"training from step {step} to {total_steps}")

    def workers(self, report: WorkerReport) -> None:
        self._print(_workers(report))

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        fields = step_fields(report, self._tracker.current)
        text = "  ".join(f"{name} {value}" for name, value in fields)
        self._print(f"{text}  ({report.note})" if report.note else text)

    def evaluation(self, report: EvaluationReport) -> None:
        self._print(f"evaluation {_evaluation(report)}")

    def checkpoint(self, report: CheckpointReport) -> None:
        self._print(f"checkpoint of step {report.step} in {report.path} ({report.seconds:.1f} s)")

    def message(self, text: str) -> None:
        self._print(text)

    def restart(self, role: str) -> None:
        self._print(f"restarting a {role}")

    def draining(self) -> None:
        self._print("stopping after this step, with a checkpoint")

    def finish(self, summary: Summary) -> None:
        for name, value in summary_fields(summary):
            self._print(f"{name}: {value}")

    def _print(self, text: str) -> None:
        self._console.out(_printable(text), highlight=False)


class LiveDisplay(Sink):
    """A panel that is redrawn after every event; messages scroll by above it."""

    def __init__(self, tracker: ProgressTracker, console: Console) -> None:
        self._tracker = tracker
        self._console = console
        self._fields: list[tuple[str, str]] = []
        self._evaluations: dict[str, str] = {}
        self._workers = ""
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def begin(self, step: int, total_steps: int) -> None:
        self._redraw()

    def workers(self, report: WorkerReport) -> None:
        self._workers = _workers(report)
        self._redraw()

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        self._fields = step_fields(report, self._tracker.current)
        self._redraw()

    def evaluation(self, report: EvaluationReport) -> None:
        self._evaluations[report.dataset] = _evaluation(report)
        self._redraw()

    def checkpoint(self, report: CheckpointReport) -> None:
        self.message(f"checkpoint of step {report.step} in {report.path}")

    def message(self, text: str) -> None:
        self._console.print(Text(_printable(text)))
        self._redraw()

    def restart(self, role: str) -> None:
        self.message(f"restarting a {role}")

    def draining(self) -> None:
        self.message("stopping after this step, with a checkpoint")

    def finish(self, summary: Summary) -> None:
        self._live.stop()
        table = Table(title="Summary", show_header=False)
        for name, value in summary_fields(summary):
            table.add_row(Text(_printable(name)), Text(_printable(value)))
        self._console.print(table)

    def close(self) -> None:
        self._live.stop()

    def _redraw(self) -> None:
        self._live.update(Group(*self._parts()), refresh=True)

    def _parts(self) -> Iterator[ProgressBar | Table | Text]:
        progress = self._tracker.current.progress
        yield ProgressBar(total=max(1, progress.total_steps), completed=progress.step)
        yield Text()  # a bar does not end its line
        grid = Table.grid(padding=(0, 3))
        cells = [Text.assemble(f"{name} ", (value, "bold")) for name, value in self._fields]
        for start in range(0, len(cells), 4):
            grid.add_row(*cells[start : start + 4])
        yield grid
        lines = [self._workers, *self._evaluations.values(), self._tracker.current.message]
        yield from (Text(_printable(line)) for line in lines if line)


def step_fields(report: StepReport, progress: Progress) -> list[tuple[str, str]]:
    """What a step is worth telling, in a few characters each."""
    metrics, eta = progress.metrics, progress.progress.eta_seconds
    return [
        ("step", f"{report.step}/{report.total_steps}"),
        ("reward", f"{report.statistics.reward_mean:.3f}"),
        ("accuracy", f"{report.statistics.accuracy_mean:.3f}"),
        ("loss", f"{report.sums.loss:.4f}"),
        ("tokens", f"{report.statistics.response_tokens_mean:.1f}"),
        ("samples/s", _number(metrics.samples_per_second)),
        ("tokens/s", _number(metrics.tokens_per_second)),
        ("buffer", f"{report.pipeline.buffer_depth}/{report.pipeline.buffer_capacity}"),
        ("staleness", f"{report.staleness_mean:.2f}"),
        ("idle", f"{report.consumer_idle_ratio:.1%}"),
        ("eta", "-" if eta is None else _duration(eta)),
    ]


def summary_fields(summary: Summary) -> list[tuple[str, str]]:
    """The end of a run, line by line."""
    outcome = f"{summary.outcome}: {summary.message}" if summary.message else str(summary.outcome)
    fields = [("outcome", outcome), ("steps", f"{summary.steps} of {summary.total_steps}")]
    if summary.first_reward is not None and summary.last_reward is not None:
        fields.append(("reward", f"{summary.first_reward:.3f} -> {summary.last_reward:.3f}"))
    for name, last in summary.last_accuracy.items():
        first = summary.first_accuracy.get(name)
        fields.append((f"accuracy on {name}", f"{_number(first, 3)} -> {last:.3f}"))
    fields += [
        ("samples", f"{summary.samples} ({summary.samples_per_second:.1f}/s)"),
        ("wall time", _duration(summary.wall_seconds)),
        ("efficiency", f"{summary.efficiency:.1%}"),
        ("consumers idle", f"{summary.consumer_idle_ratio:.1%}"),
        ("checkpoint", summary.newest_checkpoint or "none"),
        ("run directory", summary.run_directory),
    ]
    return fields


def _workers(report: WorkerReport) -> str:
    return (
        f"producers {report.producers_ready}/{report.producers_desired} ready, "
        f"consumers {report.consumers_ready}/{report.consumers_desired} ready"
    )


def _evaluation(report: EvaluationReport) -> str:
    return (
        f"{report.dataset} at step {report.step}: accuracy {report.accuracy:.3f} "
        f"({len(report.samples)} samples, {report.seconds:.1f} s)"
    )


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _printable(text: str) -> str:
    """Text that every terminal can encode: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
