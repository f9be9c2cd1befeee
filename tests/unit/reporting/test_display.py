"""The terminal: plain lines in a log, a redrawn panel on a terminal, both able to show any text."""

import io

import pytest
from rich.console import Console

from grpo_trainer.events import CheckpointReport, WorkerReport
from grpo_trainer.reporting.display import LiveDisplay, PlainDisplay, make_display
from grpo_trainer.reporting.progress import ProgressTracker


def log_console() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=60)


def terminal() -> Console:
    """Without colours, so that a text stands in one piece."""
    return Console(
        file=io.StringIO(), force_terminal=True, color_system=None, width=100, _environ={}
    )


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def tracker() -> ProgressTracker:
    return ProgressTracker(attempt=0)


def test_a_log_gets_plain_lines_and_a_terminal_a_panel(tracker):
    assert isinstance(make_display(tracker, log_console()), PlainDisplay)
    panel = make_display(tracker, terminal())
    assert isinstance(panel, LiveDisplay)
    panel.close()


def test_a_terminal_that_cannot_redraw_gets_plain_lines(tracker):
    dumb = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    assert isinstance(make_display(tracker, dumb), PlainDisplay)


def test_a_step_is_one_line_however_narrow_the_console(tracker, step_report):
    console = log_console()
    report = step_report(seconds=4.0, phase_seconds={"take": 0.12})
    tracker.step(report, {})
    PlainDisplay(tracker, console).step(report, {})
    assert text_of(console) == (
        "step 1/10  reward 4.500  accuracy 0.450  loss -0.0100  tokens 10.0  samples/s 16.0  "
        "tokens/s 240.0  buffer 5/16  staleness 1.00  idle 3.0%  eta 0:00:36\n"
    )


def test_a_line_says_why_a_step_was_empty(tracker, step_report):
    console = log_console()
    report = step_report(note="every group was constant")
    tracker.step(report, {})
    PlainDisplay(tracker, console).step(report, {})
    assert text_of(console).endswith("(every group was constant)\n")


def test_every_event_is_one_plain_line(tracker, evaluation_report):
    console = log_console()
    display = PlainDisplay(tracker, console)
    display.begin(4, 10)
    display.workers(WorkerReport(1, 2, 2, 2))
    display.evaluation(evaluation_report())
    display.checkpoint(CheckpointReport(step=5, path="runs/x/checkpoints/step-5", seconds=1.25))
    display.restart("producer")
    display.draining()
    display.message("[red]as it is[/red]")
    assert text_of(console).splitlines() == [
        "training from step 4 to 10",
        "producers 1/2 ready, consumers 2/2 ready",
        "evaluation held-out at step 0: accuracy 0.500 (2 samples, 0.5 s)",
        "checkpoint of step 5 in runs/x/checkpoints/step-5 (1.2 s)",
        "restarting a producer",
        "stopping after this step, with a checkpoint",
        "[red]as it is[/red]",
    ]


def test_the_summary_says_what_was_gained_and_where_it_lies(tracker, summary):
    console = log_console()
    PlainDisplay(tracker, console).finish(summary)
    assert text_of(console).splitlines() == [
        "outcome: succeeded",
        "steps: 10 of 10",
        "reward: 2.500 -> 7.500",
        "accuracy on held-out: 0.250 -> 0.750",
        "samples: 640 (10.0/s)",
        "wall time: 0:01:15",
        "efficiency: 97.0%",
        "consumers idle: 3.0%",
        "checkpoint: runs/x/checkpoints/step-10",
        "run directory: runs/x",
    ]


def test_the_panel_shows_the_step_the_workers_and_the_evaluations(
    tracker, step_report, evaluation_report, summary
):
    console = terminal()
    display = LiveDisplay(tracker, console)
    tracker.begin(0, 10)
    display.begin(0, 10)
    display.workers(WorkerReport(1, 2, 2, 2))
    display.evaluation(evaluation_report(dataset="[bold]set"))
    report = step_report()
    tracker.step(report, {})
    display.step(report, {})
    display.finish(summary)
    display.close()
    shown = text_of(console)
    for part in ("1/10", "4.500", "5/16", "producers 1/2 ready", "[bold]set at step 0", "Summary"):
        assert part in shown


def test_lone_surrogates_can_be_shown(tracker):
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    PlainDisplay(tracker, console).message("a\ud800b")
    panel = LiveDisplay(tracker, terminal())
    panel.message("a\ud800b")
    panel.close()
    console.file.seek(0)
    assert console.file.read() == "a\\ud800b\n"
