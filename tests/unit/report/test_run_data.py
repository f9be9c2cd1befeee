"""Run directories as a report reads them: curves, evaluations, completions, damage."""

import json
from math import sqrt

import pytest

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.report import load_run
from grpo_trainer.report.run_data import flat_name
from unit.report.builders import completion, write_lines, write_run

LIMIT = 1_000_000


def test_a_metric_is_a_curve_over_its_steps(tmp_path):
    curve = load_run(write_run(tmp_path / "run"), LIMIT).curves["grpo_reward_mean"]
    assert (curve.steps, curve.values) == ((1, 2, 3), (0.5, 1.0, 1.5))


def test_text_in_a_metrics_row_is_no_curve(tmp_path):
    assert load_run(write_run(tmp_path / "run"), LIMIT).curves.keys() == {
        "grpo_step",
        "grpo_reward_mean",
    }


def test_rows_of_evaluations_are_no_part_of_the_curves(tmp_path):
    run = write_run(tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"event": "evaluation", "grpo_step": 2, "seconds": 9.0}\n')
    curves = load_run(run, LIMIT).curves
    assert curves.keys() == {"grpo_step", "grpo_reward_mean"}
    assert curves["grpo_step"].steps == (1, 2, 3)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("grpo_clip_ratio{side=low}", "grpo_clip_ratio_low"),
        ("grpo_eval_accuracy{dataset=held out}", "grpo_eval_accuracy_held out"),
        ("grpo_loss", "grpo_loss"),
    ],
)
def test_labels_become_part_of_a_flat_name(key, name):
    assert flat_name(key) == name


def test_an_evaluation_has_a_standard_error(tmp_path):
    (found,) = load_run(write_run(tmp_path / "run"), LIMIT).evaluations
    assert (found.dataset, found.step, found.samples, found.accuracy) == ("held out", 2, 4, 0.75)
    assert found.standard_error == pytest.approx(sqrt(0.25) / sqrt(4))


def test_completions_carry_their_step_and_set(tmp_path):
    samples = load_run(write_run(tmp_path / "run"), LIMIT).samples
    assert [(s.step, s.dataset) for s in samples] == [(1, ""), (1, "")] + [(2, "held out")] * 4


def test_beyond_the_limit_the_oldest_completions_are_omitted_and_counted(tmp_path):
    run = write_run(tmp_path / "run")
    write_lines(run / "rollouts" / "step_9.jsonl", [completion(completion="x" * 2000)])
    data = load_run(run, 2500)
    assert [s.step for s in data.samples] == [9]
    assert data.omitted_samples == 6


def test_a_torn_line_costs_only_itself(tmp_path):
    run = write_run(tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"grpo_step": 4, "grpo_rew')
    assert load_run(run, LIMIT).curves["grpo_step"].steps == (1, 2, 3)


def test_values_that_are_not_finite_are_left_out(tmp_path):
    run = write_run(tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"grpo_step": 4, "grpo_reward_mean": NaN}\n')
    assert load_run(run, LIMIT).curves["grpo_reward_mean"].steps == (1, 2, 3)


def test_a_run_without_files_but_its_spec_is_empty(tmp_path):
    (tmp_path / "spec.json").write_text(json.dumps({"metadata": {"name": "new"}, "spec": {}}))
    data = load_run(tmp_path, LIMIT)
    assert (data.name, data.curves, data.evaluations, data.samples) == ("new", {}, (), ())


def test_a_directory_without_a_run_is_refused_by_name(tmp_path):
    with pytest.raises(InvalidInputError, match=r"not a run directory: it holds no spec\.json"):
        load_run(tmp_path, LIMIT)
