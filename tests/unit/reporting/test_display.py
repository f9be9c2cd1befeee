"""The terminal: plain lines in a log, a live panel on a terminal, both in any width and for any
text; what is awaited before the first step; the summary and the hints at the end."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from grpo_trainer.events import BestCheckpoint, CheckpointReport, Outcome, WorkerReport
from grpo_trainer.reporting.display import (
    LiveDisplay,
    Panel,
    PlainDisplay,
    field_grid,
    make_display,
)
from grpo_trainer.reporting.fields import step_fields
from grpo_trainer.reporting.progress import ProgressTracker
from grpo_trainer.spec import GRPOJob, parse_manifest


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def log_console() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=60)


def terminal(width: int = 100) -> Console:
    """Without colours, so that a text is in one piece."""
    return Console(
        file=io.StringIO(), force_terminal=True, color_system=None, width=width, _environ={}
    )


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def rendered(renderable, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    return [line.rstrip() for line in text_of(console).splitlines()]


@pytest.fixture
def tracker() -> ProgressTracker:
    return ProgressTracker(attempt=0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def plain(tracker, layout, clock):
    """A plain display of a job, with its console."""

    def display(job: GRPOJob | None = None) -> tuple[PlainDisplay, Console]:
        console = log_console()
        return PlainDisplay(tracker, console, job or GRPOJob(), layout, clock), console

    return display


def test_a_log_gets_plain_lines_and_a_terminal_a_panel(tracker, layout):
    assert isinstance(make_display(tracker, log_console(), GRPOJob(), layout), PlainDisplay)
    panel = make_display(tracker, terminal(), GRPOJob(), layout)
    assert isinstance(panel, LiveDisplay)
    panel.close()


def test_a_terminal_that_cannot_redraw_gets_plain_lines(tracker, layout):
    dumb = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    assert isinstance(make_display(tracker, dumb, GRPOJob(), layout), PlainDisplay)


def test_a_step_is_one_line_however_narrow_the_console(plain, tracker, clock, step_report):
    display, console = plain()
    report = step_report(seconds=4.0, phase_seconds={"take": 0.12})
    tracker.step(report, {})
    clock.now = 25.0
    display.step(report, {})
    assert text_of(console) == (
        "first step after 0:00:25\n"
        "step 1/10  reward 4.500  accuracy 0.450  scored 64/64  loss -0.0100  tokens 10.0  "
        "samples/s 16.0  tokens/s 240.0  buffer 5/16  staleness 1.00  idle 3.0%  eta 0:00:36\n"
    )


def test_a_step_shows_how_many_completions_were_scored_and_why_not_all(tracker, step_report):
    report = step_report(scored_samples=60, unscored={"timeout": 3, "exception": 1})
    fields = dict(step_fields(report, tracker.current))
    assert fields["scored"] == "60/64 (exception 1, timeout 3)"


def test_a_line_contains_the_reason_of_an_empty_step(plain, tracker, step_report):
    display, console = plain()
    report = step_report(note="every group was constant")
    tracker.step(report, {})
    display.step(report, {})
    assert text_of(console).endswith("(every group was constant)\n")


def test_every_event_is_one_plain_line(plain, layout, evaluation_report):
    display, console = plain()
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
        "evaluation of held-out at step 0: accuracy 0.500 (2 samples, 0.5 s)",
        "checkpoint of step 5 in runs/x/checkpoints/step-5 (1.2 s)",
        "restarting a producer",
        "stopping after the current step, with a checkpoint; Ctrl-C again stops at once; "
        f"to resume: grpo run --run-dir {layout.root}",
        "[red]as it is[/red]",
    ]


def job_of_steps(max_steps: int) -> GRPOJob:
    return parse_manifest({**GRPOJob().to_manifest(), "spec": {"maxSteps": max_steps}})


def test_data_that_ends_before_max_steps_is_reported_once(plain):
    display, console = plain(job_of_steps(100))
    display.begin(0, 10)
    display.begin(4, 10)
    assert text_of(console).splitlines() == [
        "training from step 0 to 10",
        "the data is used up after 10 of spec.maxSteps 100 steps; raise spec.numEpisodes or add "
        "data to train longer",
        "training from step 4 to 10",
    ]


def test_the_summary_shows_what_was_gained_and_what_to_do_next(plain, layout, summary):
    layout.create()
    layout.rollout(1).touch()
    layout.tensorboard.mkdir()
    display, console = plain()
    display.begin(0, 10)
    best = BestCheckpoint(5, "runs/x/checkpoints/step-5", 0.8)
    display.finish(replace(summary, best_checkpoint=best, scoring_errors={"timeout": 40}))
    assert text_of(console).splitlines()[1:] == [
        "outcome: succeeded",
        "steps: 10 of 10",
        "reward: 2.500 -> 7.500",
        "accuracy on held-out: 0.250 -> 0.750",
        "samples: 640 (10.0/s)",
        "scored: 600/640 (timeout 40)",
        "wall time: 0:01:15",
        "efficiency: 97.0%",
        "consumers idle: 3.0%",
        "newest checkpoint: runs/x/checkpoints/step-10",
        "best checkpoint: runs/x/checkpoints/step-5 (accuracy 0.800)",
        "run directory: runs/x",
        f"show: grpo show {layout.root}",
        f"rollouts: {layout.rollouts}",
        f"charts: tensorboard --logdir {layout.tensorboard}",
    ]


def ending(plain, summary, job: GRPOJob | None = None) -> dict[str, str]:
    display, console = plain(job)
    display.begin(0, summary.total_steps)
    display.finish(summary)
    pairs = (line.partition(": ") for line in text_of(console).splitlines())
    return {name: value for name, _, value in pairs}


def test_a_run_that_stopped_shows_how_to_resume_it(plain, layout, summary):
    shown = ending(plain, replace(summary, outcome=Outcome.STOPPED, steps=4))
    assert shown["steps"] == "4 of 10"
    assert shown["resume"] == f"grpo run --run-dir {layout.root}"


def test_a_run_that_failed_leaves_its_error_to_the_program(plain, summary):
    shown = ending(plain, replace(summary, outcome=Outcome.FAILED, message="out of memory"))
    assert shown["outcome"] == "failed"


@pytest.mark.parametrize(
    ("steps", "max_steps", "text"),
    [
        (7, 10, "7 of 10 (the data was used up: filtered groups make a run shorter)"),
        (10, 100, "10 of 10 (the data was used up before maxSteps 100)"),
    ],
)
def test_the_summary_reports_data_that_was_used_up(plain, summary, steps, max_steps, text):
    shown = ending(plain, replace(summary, steps=steps), job_of_steps(max_steps))
    assert shown["steps"] == text


def test_a_run_that_never_began_has_no_summary(plain, summary):
    display, console = plain()
    display.message("starting Ray")
    display.finish(replace(summary, outcome=Outcome.FAILED, steps=0, total_steps=0))
    assert text_of(console) == "starting Ray\n"


def test_the_scrollback_of_a_terminal_contains_evaluations_and_the_summary(
    tracker, layout, step_report, evaluation_report, summary
):
    console = terminal()
    display = LiveDisplay(tracker, console, GRPOJob(), layout)
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
    assert "evaluation of [bold]set at step 0: accuracy 0.500 (2 samples, 0.5 s)\n" in shown
    for part in ("1/10", "4.500", "5/16", "producers 1/2 ready", "Summary"):
        assert part in shown


def test_a_path_longer_than_the_terminal_stays_in_one_piece(tracker, layout):
    console, path = terminal(width=40), "/data/runs/" + "x" * 60
    display = LiveDisplay(tracker, console, GRPOJob(), layout)
    display.checkpoint(CheckpointReport(step=5, path=path, seconds=1.25))
    display.close()
    assert f"checkpoint of step 5 in {path} (1.2 s)" in text_of(console)


def test_before_the_first_step_the_panel_shows_what_is_awaited_and_for_how_long(clock):
    panel = Panel(clock)
    panel.wait_for("starting Ray")
    panel.workers = "producers 0/1 ready, consumers 0/1 ready"
    clock.now = 12.0
    assert rendered(panel, 60) == [
        "⠋ starting Ray  0:00:12",
        "producers 0/1 ready, consumers 0/1 ready",
    ]


def test_a_step_replaces_what_was_awaited(clock, tracker, step_report):
    panel, report = Panel(clock), step_report()
    panel.wait_for("starting Ray")
    tracker.step(report, {})
    panel.show(report, step_fields(report, tracker.current), "7 groups filtered")
    _bar, *lines = rendered(panel, 100)
    assert lines == [
        "step 1/10      reward 4.500     accuracy 0.450   scored 64/64",
        "loss -0.0100   tokens 10.0      samples/s 32.0   tokens/s 480.0",
        "buffer 5/16    staleness 1.00   idle 3.0%        eta 0:00:18",
        "7 groups filtered",
    ]


@pytest.mark.parametrize("width", [20, 30, 40, 60, 79, 120])
def test_a_label_stays_beside_its_value_at_every_width(tracker, step_report, width):
    report = step_report()
    tracker.step(report, {})
    fields = step_fields(report, tracker.current)
    lines = rendered(field_grid(fields, width), width)
    assert max(map(len, lines)) <= width
    for name, value in fields:
        assert any(f"{name} {value}" in line for line in lines), lines


def test_a_narrow_terminal_gets_fewer_columns(tracker, step_report):
    report = step_report()
    tracker.step(report, {})
    fields = step_fields(report, tracker.current)
    assert [len(rendered(field_grid(fields, width), width)) for width in (80, 60, 40, 20)] == [
        *(3, 4, 6, 12)
    ]


def test_lone_surrogates_are_displayed_as_escapes(tracker, layout):
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    PlainDisplay(tracker, console, GRPOJob(), layout).message("a\ud800b")
    panel = LiveDisplay(tracker, terminal(), GRPOJob(), layout)
    panel.message("a\ud800b")
    panel.close()
    console.file.seek(0)
    assert console.file.read() == "a\\ud800b\n"
