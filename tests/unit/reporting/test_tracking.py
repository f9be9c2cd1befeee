"""Trackers: a missing package or key fails before the start; tags, hyperparameters and completions;
TensorBoard's event files after a rollback."""

import math
import re

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.reporting import tracking
from grpo_trainer.reporting.metrics import MetricValues, Series
from grpo_trainer.reporting.paths import RunPaths
from grpo_trainer.reporting.tracking import check_tracking
from grpo_trainer.reporting.tracking.scalars import (
    completions_text,
    evaluation_scalars,
    hyperparameters,
    step_scalars,
)
from grpo_trainer.reporting.tracking.tensorboard import TensorBoard
from grpo_trainer.spec import GRPOJob, GRPOJobSpec, parse_manifest


@pytest.fixture
def wandb_spec() -> GRPOJobSpec:
    return GRPOJobSpec.model_validate({"tracking": {"wandb": {}}})


@pytest.fixture
def empty_home(tmp_path, monkeypatch):
    """A home without credentials."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return tmp_path


def test_the_defaults_need_no_account(monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    check_tracking(GRPOJobSpec())


def test_every_missing_package_is_named_with_its_field(monkeypatch):
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    spec = GRPOJobSpec.model_validate({"tracking": {"wandb": {}, "mlflow": {}, "trackio": {}}})
    with pytest.raises(InvalidInputError) as caught:
        check_tracking(spec)
    missing = "Forbidden: the package {0} is not installed; install grpo-operator[{0}] or remove"
    assert caught.value.faults == (
        "spec.tracking.tensorboard: Invalid value: true: the package tensorboard is not installed; "
        "install it or set false",
        *(
            f"spec.tracking.{name}: {missing.format(name)} the field"
            for name in ("wandb", "mlflow", "trackio")
        ),
    )


def test_a_missing_key_is_an_error_that_lists_the_ways_to_give_one(empty_home, wandb_spec):
    with pytest.raises(InvalidInputError, match=r"no API key; set WANDB_API_KEY.*wandb login"):
        check_tracking(wandb_spec)


@pytest.mark.parametrize(
    ("variable", "value"), [("WANDB_API_KEY", "k" * 40), ("WANDB_MODE", "offline")]
)
def test_a_key_or_offline_mode_is_enough(empty_home, monkeypatch, wandb_spec, variable, value):
    monkeypatch.setenv(variable, value)
    check_tracking(wandb_spec)


def test_a_login_in_netrc_is_enough(empty_home, wandb_spec):
    netrc = empty_home / ".netrc"
    netrc.write_text("machine api.wandb.ai login user password secret\n")
    netrc.chmod(0o600)
    check_tracking(wandb_spec)


def test_tags_are_grouped_by_section_and_leave_out_other_events(step_report, evaluation_report):
    values = MetricValues()
    values.evaluation(evaluation_report())
    values.step(step_report(kl=math.inf))
    scalars = step_scalars(values.current)
    assert scalars["train/clip_ratio_low"] == 0.01
    assert scalars["rollout/reward_std"] == 2.25
    assert scalars["perf/phase_seconds_total_train"] == 1.25
    assert {tag.partition("/")[0] for tag in scalars} == {"train", "rollout", "perf"}
    assert "train/kl" not in scalars


def test_an_evaluation_has_a_folder_for_each_set(evaluation_report):
    assert evaluation_scalars(evaluation_report()) == {
        "eval/held-out/accuracy": 0.5,
        "eval/held-out/format_accuracy": 1.0,
        "eval/held-out/response_tokens_mean": 2.0,
    }


def test_hyperparameters_are_the_fields_of_the_spec_by_path():
    manifest = GRPOJob().to_manifest()
    manifest["spec"] = {"seed": 7, "algorithm": {"learningRate": 1e-5}}
    parameters = hyperparameters(parse_manifest(manifest))
    assert parameters["seed"] == 7
    assert parameters["algorithm.learningRate"] == 1e-5


def read(layout: RunPaths) -> EventAccumulator:
    return EventAccumulator(str(layout.tensorboard)).Reload()


def test_tensorboard_shows_each_step_once_after_a_rollback(layout, step_report, evaluation_report):
    board = TensorBoard(GRPOJob(), layout)
    board.begin(0, 10)
    for step in (1, 2, 3):
        board.step(step_report(step=step), {Series("grpo_loss"): float(step)})
    board.begin(1, 10)
    board.step(step_report(step=2), {Series("grpo_loss"): 20.0})
    board.evaluation(evaluation_report(step=2))
    board.close()
    events = read(layout)
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(1, 1.0), (2, 20.0)]
    assert [e.step for e in events.Scalars("eval/held-out/accuracy")] == [2]


def test_tensorboard_contains_hyperparameters_and_sampled_completions(layout, logged_sample):
    board = TensorBoard(GRPOJob(), layout)
    board.begin(0, 10)
    board.rollouts(1, [logged_sample(completion="a *b*\n\ud800")])
    board.close()
    events = read(layout)
    (text,) = events.Tensors("rollout/completions/text_summary")
    assert "    a *b*\n    \\ud800" in text.tensor_proto.string_val[0].decode()
    plugin = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"algorithm.learningRate" in plugin


def test_the_text_shows_the_best_and_the_worst_completions_once_each(logged_sample):
    rewards = [1.0, None, 3.0, 2.0, 0.0]
    text = completions_text([logged_sample(reward=reward) for reward in rewards])
    titles = re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE)
    assert titles == ["reward 3", "reward 2", "reward 0", "not scored"]
    assert completions_text([logged_sample(), logged_sample()]).count("**reward 0**") == 2


def test_a_run_that_never_trained_leaves_no_event_file(layout):
    TensorBoard(GRPOJob(), layout).close()
    assert not layout.tensorboard.exists()
