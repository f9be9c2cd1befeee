"""The run on the terminal: a live panel, or a line per event where output is not a terminal."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ..events import CheckpointReport, EvaluationReport, StepReport, Summary, WorkerReport
from ..spec import GRPOJob
from . import fields
from .fields import Fields
from .metrics import Series
from .paths import RunPaths
from .progress import ProgressTracker
from .sink import Sink

_FIRST_BATCH = "waiting for the first batch"
_GAP = 3
"""Columns between the fields of the panel."""
_REFRESHES_PER_SECOND = 4


def make_display(
    tracker: ProgressTracker, console: Console, job: GRPOJob, layout: RunPaths
) -> "Display":
    """A live panel on a terminal that can redraw, plain lines elsewhere."""
    live = console.is_terminal and not console.is_dumb_terminal
    return (LiveDisplay if live else PlainDisplay)(tracker, console, job, layout)


class Display(Sink, ABC):
    """What both displays have in common: every event but a step is a message."""

    def __init__(
        self,
        tracker: ProgressTracker,
        console: Console,
        job: GRPOJob,
        layout: RunPaths,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tracker = tracker
        self._console = console
        self._job = job
        self._layout = layout
        self._clock = clock
        self._opened = clock()
        self._began = False
        self._stepped = False

    def begin(self, step: int, total_steps: int) -> None:
        self._print(f"training from step {step} to {total_steps}")
        short = fields.short_data(total_steps, self._job.spec.max_steps)
        if short is not None and not self._began:
            self._print(short)
        self._began = True

    def workers(self, report: WorkerReport) -> None:
        self._print(fields.workers(report))

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        if not self._stepped:
            self._print(f"first step after {fields.duration(self._clock() - self._opened)}")
        self._stepped = True

    def evaluation(self, report: EvaluationReport) -> None:
        self._print(fields.evaluation(report))

    def checkpoint(self, report: CheckpointReport) -> None:
        self._print(fields.checkpoint(report))

    def message(self, text: str) -> None:
        self._print(text)

    def restart(self, role: str) -> None:
        self._print(f"restarting a {role}")

    def draining(self) -> None:
        self._print(fields.stopping(self._layout))

    def finish(self, summary: Summary) -> None:
        # A run that never began has no totals; the program prints its error.
        if self._began:
            self._show_summary(
                fields.summary_fields(summary, self._job.spec.max_steps),
                fields.closing_hints(summary, self._job, self._layout),
            )

    def _show_summary(self, summary: Fields, hints: Fields) -> None:
        for name, value in [*summary, *hints]:
            self._print(f"{name}: {value}")

    @abstractmethod
    def _print(self, text: str) -> None:
        """Write one line."""


class PlainDisplay(Display):
    """One line per event, for logs."""

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        super().step(report, values)
        pairs = fields.step_fields(report, self._tracker.current)
        text = "  ".join(f"{name} {value}" for name, value in pairs)
        self._print(f"{text}  ({report.note})" if report.note else text)

    def _print(self, text: str) -> None:
        self._console.out(fields.printable(text), highlight=False)


class LiveDisplay(Display):
    """A panel below the messages, which scroll by. Before the first step it shows what the run
    waits for, and for how long."""

    def __init__(
        self,
        tracker: ProgressTracker,
        console: Console,
        job: GRPOJob,
        layout: RunPaths,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(tracker, console, job, layout, clock)
        self.panel = Panel(clock)
        self._live = Live(
            self.panel,
            console=console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
        )
        self._live.start()

    def begin(self, step: int, total_steps: int) -> None:
        super().begin(step, total_steps)
        self.panel.wait_for(_FIRST_BATCH)
        self._live.refresh()

    def workers(self, report: WorkerReport) -> None:
        self.panel.workers = fields.workers(report)
        self._live.refresh()

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        super().step(report, values)
        progress = self._tracker.current
        self.panel.show(report, fields.step_fields(report, progress), progress.message)
        self._live.refresh()

    def message(self, text: str) -> None:
        if not self._stepped:
            self.panel.wait_for(text)
        super().message(text)

    def finish(self, summary: Summary) -> None:
        self._live.stop()
        super().finish(summary)

    def close(self) -> None:
        self._live.stop()

    def _show_summary(self, summary: Fields, hints: Fields) -> None:
        table = Table(title="Summary", show_header=False)
        for name, value in summary:
            table.add_row(Text(fields.printable(name)), Text(fields.printable(value)))
        self._console.print(table)
        for name, value in hints:
            self._print(f"{name}: {value}")

    def _print(self, text: str) -> None:
        # Long lines are wrapped by the terminal: what is copied from them has no line ends.
        self._console.print(Text(fields.printable(text)), soft_wrap=True)


class Panel:
    """The redrawn part of the terminal."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._awaited = ""
        self._since = clock()
        self._spinner = Spinner("dots")
        self._fields: Fields = []
        self._done = 0.0
        self._note = ""
        self.workers = ""

    def wait_for(self, text: str) -> None:
        """Show what the run waits for, with the time since now."""
        self._awaited, self._since = text, self._clock()

    def show(self, report: StepReport, pairs: Fields, note: str) -> None:
        """Show a step."""
        self._awaited, self._fields, self._note = "", pairs, note
        self._done = report.share_done

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Group(*self._parts(options.max_width))

    def _parts(self, width: int) -> Iterator[ProgressBar | Spinner | Table | Text]:
        if self._fields:
            yield ProgressBar(total=1.0, completed=self._done)
            yield Text()  # a bar does not end its line
            yield field_grid(self._fields, width)
        if self._awaited:
            elapsed = fields.duration(self._clock() - self._since)
            self._spinner.update(text=Text(fields.printable(f"{self._awaited}  {elapsed}")))
            yield self._spinner
        yield from (Text(fields.printable(line)) for line in (self.workers, self._note) if line)


def field_grid(pairs: Fields, width: int) -> Table:
    """The fields in as many columns as fit, at most 4; a label stays beside its value."""
    columns = next((n for n in (4, 3, 2) if _grid_width(pairs, n) <= width), 1)
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    cells = [
        Text.assemble(f"{name} ", (value, "bold"), no_wrap=True, overflow="ellipsis")
        for name, value in pairs
    ]
    for start in range(0, len(cells), columns):
        grid.add_row(*cells[start : start + columns])
    return grid


def _grid_width(pairs: Fields, columns: int) -> int:
    widths = [cell_len(f"{name} {value}") for name, value in pairs]
    return sum(max(widths[i::columns], default=0) + _GAP for i in range(columns))
