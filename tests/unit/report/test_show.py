"""`grpo show` and `grpo compare`: exact output on hand-written runs, sparklines, any text."""

import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from grpo_trainer.cli.main import main
from grpo_trainer.report import compare_runs, load_run, show_run
from grpo_trainer.report.sparkline import resampled, sparkline
from unit.report.builders import completion, write_lines, write_run

LIMIT = 1_000_000


def printed(renderable, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(renderable)
    return [line.rstrip().rstrip("─").rstrip() for line in console.file.getvalue().splitlines()]


def ended(directory, **summary) -> None:
    body = {"outcome": "succeeded", "steps": 3, "total_steps": 3} | summary
    (directory / "summary.json").write_text(json.dumps(body))


def test_a_run_is_shown_with_curves_evaluations_and_completions(tmp_path):
    directory = write_run(tmp_path / "run")
    ended(directory)
    rows = [completion(completion=str(i), reward=float(i)) for i in (3, 1, 2, 0)]
    write_lines(directory / "rollouts" / "step_2.jsonl", [*rows, rows[0]])
    shown = printed(show_run(load_run(directory, LIMIT), 80, completions=1))
    assert shown == [
        "sums: succeeded, 3 of 3 steps",
        str(directory),
        "Curves",
        "             first  last",
        "reward  ▁▅█    0.5   1.5",
        "Evaluations",
        "                     first           last             best",
        "held out  ▆  0.750 ± 0.250  0.750 ± 0.250  0.750 at step 2",
        "Best completions of step 2",
        "reward 3, reference answer 2",
        "  prompt: 1+1=",
        "  completion: 3",
        "Worst completions of step 2",
        "reward 0, reference answer 2",
        "  prompt: 1+1=",
        "  completion: 0",
    ]


def test_a_wide_terminal_shows_the_range_of_a_curve(tmp_path):
    run = load_run(write_run(tmp_path / "run"), LIMIT)
    assert "             first  last  lowest  highest" in printed(show_run(run, 100), 100)


def test_a_run_that_has_not_ended_shows_its_steps(tmp_path):
    run = load_run(write_run(tmp_path / "run"), LIMIT)
    assert printed(show_run(run, 80))[0] == "sums: has not ended, 3 steps"


def test_a_completion_without_a_score_is_among_the_worst(tmp_path):
    directory = write_run(tmp_path / "run")
    shown = printed(show_run(load_run(directory, LIMIT), 80))
    at = shown.index("Worst completions of step 1")
    assert shown[at + 1] == "not scored, reference answer 2"


def test_a_long_completion_is_shortened_and_control_characters_are_escaped(tmp_path):
    directory = write_run(tmp_path / "run")
    rows = [completion(completion="\x1b[31m" + "x" * 500 + "\ud800"), completion(reward=0.0)]
    write_lines(directory / "rollouts" / "step_5.jsonl", rows)
    text = "".join(printed(show_run(load_run(directory, LIMIT), 80)))
    assert "\\x1b[31mxxx" in text
    assert "\x1b" not in text
    assert "more characters)" in text


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path fits in a line of 80 columns."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def test_two_runs_are_compared_by_configuration_results_and_curves(short_path):
    one = write_run(short_path / "one")
    other = write_run(short_path / "other", steps=4)
    ended(one, samples_per_second=10.5)
    manifest = {"metadata": {"name": "sums"}, "spec": {"seed": 2}}
    (other / "spec.json").write_text(json.dumps(manifest))
    (other / "environment.json").write_text(json.dumps({"torch": "2.14.0", "command": "b"}))
    shown = printed(compare_runs(load_run(one, 0), load_run(other, 0), 80))
    assert shown == [
        "A  sums: succeeded, 3 of 3 steps",
        f"   {one}",
        "B  sums: has not ended, 4 steps",
        f"   {other}",
        "Configuration",
        "                    A  B",
        "spec.sampling.topK  5  (default)",
        "spec.seed           1  2",
        "Environment",
        "       A       B",
        "torch  2.13.0  2.14.0",
        "Results",
        "                         A                        B",
        "outcome                  succeeded                -",
        "steps                    3                        -",
        "samples                  -                        -",
        "samples per second       10.5                     -",
        "wall seconds             -                        -",
        "efficiency               -                        -",
        "consumers idle           -                        -",
        "reward, last 10 steps    1                        1.25",
        "accuracy, last 10 steps  -                        -",
        "accuracy on held out     0.750 ± 0.250 at step 2  0.750 ± 0.250 at step 2",
        "Curves",
        "        A    B     last A  last B",
        "reward  ▁▃▆  ▁▃▆█     1.5       2",
    ]


def test_equal_manifests_are_reported_as_equal(tmp_path):
    run = load_run(write_run(tmp_path / "run"), 0)
    assert "the manifests are equal" in printed(compare_runs(run, run, 80))


@pytest.mark.parametrize("command", [["show", "run"], ["compare", "run", "run"]])
def test_the_commands_print_the_run(tmp_path, monkeypatch, capsys, command):
    write_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert main(command) == 0
    assert "sums: has not ended, 3 steps" in capsys.readouterr().out


def test_a_directory_without_a_run_is_an_error(tmp_path, capsys):
    assert main(["show", str(tmp_path)]) == 64
    assert "not a run directory" in capsys.readouterr().err


def test_a_sparkline_spans_its_own_range_or_a_given_one():
    assert sparkline([0, 1, 2, 3], 10) == "▁▃▆█"
    assert sparkline([0, 1], 10, low=0, high=2) == "▁▅"
    assert sparkline([5, 5], 10) == "▁▁"
    assert sparkline([], 10) == ""


@given(st.lists(st.floats(-1e6, 1e6), max_size=300), st.integers(1, 80))
def test_a_sparkline_is_never_wider_than_asked(values, width):
    assert len(sparkline(values, width)) == min(width, len(values))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.integers(1, 80))
def test_resampling_stays_within_the_range_of_the_values(values, width):
    points = resampled(values, width)
    assert min(values) - 1e-6 <= min(points) and max(points) <= max(values) + 1e-6
