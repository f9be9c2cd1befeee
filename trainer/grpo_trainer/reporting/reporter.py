"""The reporter of the driver."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from rich.console import Console

from ..events import (
    CheckpointReport,
    EvaluationReport,
    LoggedSample,
    StepReport,
    Summary,
    WorkerReport,
)
from ..options import RunOptions
from ..spec import CodeProtection, GRPOJob, Progress
from .display import PlainDisplay, make_display
from .environment import describe_environment
from .journal import Journal
from .metrics import MetricValues
from .paths import RunPaths
from .progress import ProgressTracker
from .prometheus import Exposition
from .server import Server
from .sink import Sink
from .tracking import check_tracking, make_trackers


class Reporter:
    """Passes every report to files, metrics, progress, terminal and trackers."""

    def __init__(
        self,
        values: MetricValues,
        journal: Journal,
        tracker: ProgressTracker,
        others: Sequence[Sink],
    ) -> None:
        self._values = values
        self._journal = journal
        self._tracker = tracker
        # The tracker is first: displays read it.
        self._sinks: tuple[Sink, ...] = (tracker, journal, *others)

    @property
    def progress(self) -> Progress:
        """The progress that `/progress` serves."""
        return self._tracker.current

    def begin(self, step: int, total_steps: int) -> None:
        """Training continues after `step` steps: 0, or the step of the checkpoint it resumes from.

        Call it before the first report of a step or an evaluation, and again after each rollback:
        rows of later steps are removed from the journal, totals continue.
        """
        self._values.restore(self._journal.rewind(step))
        self._values.begin(step, total_steps)
        for sink in self._sinks:
            sink.begin(step, total_steps)

    def workers(self, report: WorkerReport) -> None:
        for sink in self._sinks:
            sink.workers(report)

    def step(self, report: StepReport) -> None:
        self._values.step(report)
        for sink in self._sinks:
            sink.step(report, self._values.current)

    def evaluation(self, report: EvaluationReport) -> None:
        self._values.evaluation(report)
        for sink in self._sinks:
            sink.evaluation(report)

    def rollouts(self, step: int, samples: Sequence[LoggedSample]) -> None:
        for sink in self._sinks:
            sink.rollouts(step, samples)

    def checkpoint(self, report: CheckpointReport) -> None:
        self._values.checkpoint(report)
        for sink in self._sinks:
            sink.checkpoint(report)

    def code_protection(self, found: CodeProtection | None) -> None:
        """What keeps programs of completions from files; None where none is run."""
        self._tracker.code_protection(found)

    def message(self, text: str) -> None:
        """A line of text, such as what the run waits for."""
        for sink in self._sinks:
            sink.message(text)

    def restart(self, role: str) -> None:
        """A worker of this role (`producer`, `consumer`) is being restarted."""
        self._values.restart(role)
        for sink in self._sinks:
            sink.restart(role)

    def draining(self) -> None:
        """A stop was requested; the run ends with a checkpoint."""
        for sink in self._sinks:
            sink.draining()

    def finish(self, summary: Summary) -> None:
        """The last report, at every end of a run."""
        summary = replace(summary, best_checkpoint=self._journal.best_checkpoint())
        for sink in self._sinks:
            sink.finish(summary)

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()


@asynccontextmanager
async def open_reporter(
    job: GRPOJob,
    options: RunOptions,
    on_drain: Callable[[], None],
    on_stacks: Callable[[], Awaitable[Path]],
    console: Console | None = None,
    log: TextIO | None = None,
) -> AsyncIterator[Reporter]:
    """Create the run directory and serve its progress until the block ends.

    `on_drain` is called once, in the event loop, when a stop is requested over HTTP; `on_stacks`
    writes the stacks of all processes to a file on request. Raises InvalidInputError for trackers,
    an address or a run directory that cannot work.
    """
    check_tracking(job.spec)
    layout = RunPaths.of(options)
    values, tracker = MetricValues(), ProgressTracker(options.attempt)
    journal, exposition = Journal(layout, job), Exposition(values)
    journal.environment(describe_environment())

    def drain() -> None:
        reporter.draining()
        on_drain()

    trackers = make_trackers(job, layout)
    display = make_display(tracker, console or Console(), job, layout)
    logs = (PlainDisplay(tracker, Console(file=log), job, layout),) if log is not None else ()
    reporter = Reporter(values, journal, tracker, (exposition, display, *logs, *trackers))
    server = Server(options, layout, exposition, tracker, drain, on_stacks)
    try:
        url = await server.start()
        display.message(f"run directory {layout.root}, metrics at {url}/metrics")
        yield reporter
    finally:
        await server.linger(options.linger_seconds)
        await server.stop()
        reporter.close()
