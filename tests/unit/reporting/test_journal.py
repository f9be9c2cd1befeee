"""The files of a run directory: one row per step and per evaluation, rewound on resume;
evaluations, rollouts, spec and summary whole; any text of a model; directories elsewhere."""

import json
import math
from pathlib import Path

import pandas
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.options import RunOptions
from grpo_trainer.reporting.environment import describe_environment
from grpo_trainer.reporting.journal import Journal
from grpo_trainer.reporting.metrics import MetricValues, Series
from grpo_trainer.reporting.paths import RunPaths
from grpo_trainer.spec import GRPOJob, parse_manifest


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def write_steps(journal: Journal, step_report, *steps: int) -> None:
    values = MetricValues()
    for step in steps:
        report = step_report(step=step)
        values.step(report)
        journal.step(report, values.current)


def test_a_step_is_one_flat_row_with_the_names_of_the_metrics(journal, layout, step_report):
    write_steps(journal, step_report, 1, 2)
    first, second = lines(layout.metrics)
    assert (first["grpo_step"], second["grpo_step"]) == (1, 2)
    assert second["grpo_samples_total"] == 128
    assert second["grpo_tokens_total_prompt"] == 640
    assert second["grpo_clip_ratio_high"] == 0.02
    assert second["grpo_staleness_versions"] == 1.0
    assert second["zero_std_fraction"] == 0.125
    assert all(isinstance(value, str | int | float) for value in second.values())


def test_a_row_contains_the_reason_of_an_empty_step(journal, layout, step_report):
    journal.step(step_report(note="every group was constant"), {Series("grpo_step"): 1})
    assert lines(layout.metrics)[0]["note"] == "every group was constant"


def test_each_row_can_be_read_as_soon_as_its_step_is_reported(journal, layout, step_report):
    for step in range(1, 4):
        write_steps(journal, step_report, step)
        assert len(lines(layout.metrics)) == step


def test_values_that_are_not_finite_become_null(journal, layout, step_report):
    journal.step(step_report(), {Series("grpo_step"): 1, Series("grpo_loss"): math.nan})
    assert lines(layout.metrics)[0]["grpo_loss"] is None


def test_rewinding_removes_the_rows_of_later_steps(journal, layout, step_report):
    write_steps(journal, step_report, 1, 2, 3, 4)
    journal.rewind(2)
    assert [line["grpo_step"] for line in lines(layout.metrics)] == [1, 2]


def test_rewinding_returns_the_totals_of_all_work_so_far(journal, step_report):
    write_steps(journal, step_report, 1, 2, 3)
    assert journal.rewind(1)[Series("grpo_samples_total")] == 192


def test_rewinding_removes_a_row_that_a_crash_left_incomplete(journal, layout, step_report):
    write_steps(journal, step_report, 1, 2)
    whole = layout.metrics.read_bytes()
    layout.metrics.write_bytes(whole + whole[: len(whole) // 4])
    journal.rewind(10)
    assert layout.metrics.read_bytes() == whole


def test_rewinding_to_the_start_leaves_an_empty_journal(journal, layout, step_report):
    write_steps(journal, step_report, 1)
    journal.rewind(0)
    assert layout.metrics.read_bytes() == b""


def test_a_new_run_has_nothing_to_rewind(journal):
    assert journal.rewind(0) == {}


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.integers(0, 6), torn=st.integers(0, 400), to=st.integers(0, 8))
def test_after_any_crash_the_journal_holds_exactly_the_kept_whole_steps(
    tmp_path_factory, step_report, steps, torn, to
):
    layout = RunPaths.of(RunOptions(tmp_path_factory.mktemp("run")))
    journal = Journal(layout, GRPOJob())
    layout.metrics.touch()
    write_steps(journal, step_report, *range(1, steps + 1))
    content = layout.metrics.read_bytes()
    layout.metrics.write_bytes(content[: max(0, len(content) - torn)])
    whole = layout.metrics.read_bytes().count(b"\n")
    journal.rewind(to)
    assert [line["grpo_step"] for line in lines(layout.metrics)] == list(
        range(1, min(whole, to) + 1)
    )


def test_an_evaluation_is_a_file_with_a_row_per_sample(journal, layout, evaluation_report):
    journal.evaluation(evaluation_report(step=20))
    rows = lines(layout.root / "eval" / "held-out_step_20.jsonl")
    assert len(rows) == 2
    assert rows[0]["source"] == "test.jsonl row 1"
    assert rows[0]["accuracy"] == 1.0


def test_an_evaluation_is_a_row_of_its_own_with_the_step_of_its_weights(
    journal, layout, step_report, evaluation_report
):
    write_steps(journal, step_report, 1, 2)
    journal.evaluation(evaluation_report(step=1))
    *steps, row = lines(layout.metrics)
    assert [step["event"] for step in steps] == ["step", "step"]
    assert not [key for step in steps for key in step if key.startswith("grpo_eval")]
    del row["time"]
    assert row == {
        "event": "evaluation",
        "grpo_step": 1,
        "dataset": "held-out",
        "grpo_eval_accuracy": 0.5,
        "format_accuracy": 1.0,
        "response_tokens_mean": 2.0,
        "samples": 2,
        "seconds": 0.5,
    }


def test_rewinding_keeps_the_evaluations_of_the_steps_that_stay(
    journal, layout, step_report, evaluation_report
):
    write_steps(journal, step_report, 1, 2)
    journal.evaluation(evaluation_report(step=1))
    journal.evaluation(evaluation_report(step=2))
    values = journal.rewind(1)
    rows = [(row["event"], row["grpo_step"]) for row in lines(layout.metrics)]
    assert rows == [("step", 1), ("evaluation", 1)]
    assert values[Series("grpo_eval_accuracy", "held-out")] == 0.5


def test_a_repeated_evaluation_replaces_its_row(layout, step_report, evaluation_report):
    first = Journal(layout, GRPOJob())
    write_steps(first, step_report, 1)
    first.evaluation(evaluation_report(step=1, accuracy=0.25))
    resumed = Journal(layout, GRPOJob())
    resumed.rewind(1)
    resumed.evaluation(evaluation_report(step=1, accuracy=0.75))
    rows = [row for row in lines(layout.metrics) if row["event"] == "evaluation"]
    assert [row["grpo_eval_accuracy"] for row in rows] == [0.75]


def test_a_file_of_an_earlier_version_is_rewound_too(journal, layout):
    old = {"grpo_step": 1, "grpo_samples_total": 64, "grpo_clip_ratio{side=low}": 0.5}
    layout.metrics.write_text(json.dumps(old) + "\n")
    assert journal.rewind(1) == {Series("grpo_step"): 1, Series("grpo_samples_total"): 64}


def test_pandas_reads_the_file_without_any_option(journal, layout, step_report, evaluation_report):
    write_steps(journal, step_report, 1, 2)
    journal.evaluation(evaluation_report(step=2))
    table = pandas.read_json(layout.metrics, lines=True)
    steps = table[table.event == "step"]
    assert steps.grpo_clip_ratio_low.tolist() == [0.01, 0.01]
    assert table[table.event == "evaluation"].grpo_eval_accuracy.tolist() == [0.5]


def complete(layout: RunPaths, *steps: int) -> None:
    for step in steps:
        (layout.checkpoints / f"step-{step}").mkdir()
        (layout.checkpoints / f"step-{step}" / "COMPLETE").touch()


def test_the_best_checkpoint_is_the_one_evaluated_best_of_those_that_remain(
    journal, layout, evaluation_report
):
    complete(layout, 2, 3, 4)
    (layout.checkpoints / "step-5").mkdir()
    for step, accuracy in {1: 0.9, 2: 0.5, 3: 0.5, 4: 0.25, 5: 1.0}.items():
        journal.evaluation(evaluation_report(step=step, accuracy=accuracy))
    journal.evaluation(evaluation_report(step=3, dataset="other", accuracy=0.75))
    best = journal.best_checkpoint()
    assert (best.step, best.accuracy) == (3, 0.625)
    assert best.path == str(layout.checkpoints / "step-3")


def test_without_evaluations_no_checkpoint_is_the_best(journal, layout):
    complete(layout, 2)
    assert journal.best_checkpoint() is None


def test_a_data_set_cannot_be_named_out_of_the_evaluation_folder(
    journal, layout, evaluation_report
):
    journal.evaluation(evaluation_report(dataset="../../a b", step=1))
    assert [path.name for path in layout.evaluations.iterdir()] == ["..%2F..%2Fa%20b_step_1.jsonl"]


@pytest.mark.parametrize(
    "text", ["\ud835", "a\ud800b", "\U0001f600", "漢字", "\x00", "\u2028", "\n"]
)
def test_any_text_of_a_model_is_written_and_read_back(
    journal, layout, logged_sample, evaluation_report, text
):
    journal.rollouts(20, [logged_sample(completion=text)])
    sample = evaluation_report().samples[0]
    samples = (type(sample)(**{**_fields(sample), "completion": text}),)
    journal.evaluation(evaluation_report(samples=samples))
    assert lines(layout.root / "rollouts" / "step_20.jsonl")[0]["completion"] == text
    assert lines(layout.evaluation("held-out", 0))[0]["completion"] == text


def test_the_summary_is_replaced_whole_and_leaves_no_other_file(journal, layout, summary):
    journal.finish(summary)
    journal.finish(summary)
    read = json.loads(layout.summary.read_text())
    assert read["outcome"] == "succeeded"
    assert read["last_accuracy"] == {"held-out": 0.75}
    names = {path.name for path in layout.root.iterdir() if path.is_file()}
    assert names == {"spec.json", "summary.json"}


def test_the_stored_spec_is_the_manifest_again(layout):
    data = GRPOJob().to_manifest()
    data["spec"] = {"reward": {"systemPrompt": "Sum up \U0001f600."}, "seed": 7}
    job = parse_manifest(data)
    Journal(layout, job)
    assert parse_manifest(json.loads(layout.spec.read_text())) == job


def test_checkpoints_evaluations_and_rollouts_may_lie_elsewhere(
    tmp_path, evaluation_report, logged_sample
):
    options = RunOptions(
        run_dir=tmp_path / "run",
        checkpoint_dir=tmp_path / "a/model",
        evaluation_dir=tmp_path / "b/eval",
        rollout_dir=tmp_path / "c/rollouts",
    )
    journal = Journal(RunPaths.of(options), GRPOJob())
    journal.evaluation(evaluation_report(step=3))
    journal.rollouts(3, [logged_sample()])
    assert (tmp_path / "a/model").is_dir()
    assert (tmp_path / "b/eval/held-out_step_3.jsonl").exists()
    assert (tmp_path / "c/rollouts/step_3.jsonl").exists()
    # What a later start without these options finds.
    assert (tmp_path / "run/checkpoints").resolve() == tmp_path / "a/model"


def test_a_run_directory_that_cannot_be_made_is_bad_input(tmp_path):
    (tmp_path / "file").write_text("")
    layout = RunPaths.of(RunOptions(tmp_path / "file/run"))
    with pytest.raises(InvalidInputError, match=r"directory .*/file/run: .*Not a directory"):
        Journal(layout, GRPOJob())


def _fields(record) -> dict:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def test_the_environment_names_versions_and_machine_and_no_variable(layout, journal, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    journal.environment(describe_environment())
    found = json.loads(layout.environment.read_text())
    assert {"command", "python", "torch", "ray", "machine of the driver"} <= found.keys()
    assert "hush" not in layout.environment.read_text()


def test_tokens_are_in_the_file_only_where_they_are_logged(layout, journal, logged_sample):
    logged = logged_sample(tokens=["3", "."], log_ratios=[0.25, None])
    journal.rollouts(1, [logged_sample(), logged])
    plain, full = (json.loads(line) for line in layout.rollout(1).read_text().splitlines())
    assert not {"tokens", "log_ratios"} & plain.keys()
    assert (full["tokens"], full["log_ratios"]) == (["3", "."], [0.25, None])
