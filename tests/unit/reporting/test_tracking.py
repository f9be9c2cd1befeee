"""Trackers: what is missing is told before a run starts; TensorBoard's event files hold the steps
that count, also after a return to a checkpoint."""

import math

import pytest

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.reporting import tracking
from grpo_trainer.reporting.metrics import MetricValues, Series
from grpo_trainer.reporting.tracking import TensorBoard, check_tracking, step_scalars
from grpo_trainer.spec import GRPOJobSpec


@pytest.fixture
def wandb_spec() -> GRPOJobSpec:
    return GRPOJobSpec.model_validate({"tracking": {"wandb": {}}})


@pytest.fixture
def installed_wandb(tmp_path, monkeypatch):
    """A package of that name, in a home without credentials."""
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return tmp_path


def test_the_defaults_need_no_account(monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    check_tracking(GRPOJobSpec())


def test_every_missing_package_is_named_with_the_field_that_asks_for_it(monkeypatch, wandb_spec):
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(InvalidInputError) as caught:
        check_tracking(wandb_spec)
    tensorboard, wandb = caught.value.faults
    assert "spec.tracking.tensorboard: true needs the package tensorboard" in tensorboard
    assert "spec.tracking.wandb: needs the package wandb" in wandb


def test_a_missing_key_is_told_with_the_ways_to_give_one(installed_wandb, wandb_spec):
    with pytest.raises(InvalidInputError, match=r"no API key; set WANDB_API_KEY.*wandb login"):
        check_tracking(wandb_spec)


@pytest.mark.parametrize(
    ("variable", "value"), [("WANDB_API_KEY", "k" * 40), ("WANDB_MODE", "offline")]
)
def test_a_key_or_offline_mode_will_do(installed_wandb, monkeypatch, wandb_spec, variable, value):
    monkeypatch.setenv(variable, value)
    check_tracking(wandb_spec)


def test_a_login_in_netrc_will_do(installed_wandb, wandb_spec):
    netrc = installed_wandb / ".netrc"
    netrc.write_text("machine api.wandb.ai login user password secret\n")
    netrc.chmod(0o600)
    check_tracking(wandb_spec)


def test_a_step_logs_what_it_measured_and_not_what_earlier_events_left(
    step_report, evaluation_report
):
    values = MetricValues()
    values.evaluation(evaluation_report())
    values.step(step_report(kl=math.inf))
    scalars = step_scalars(values.current)
    assert scalars["grpo_clip_ratio/low"] == 0.01
    assert scalars["reward_std"] == 2.25
    assert not [tag for tag in scalars if tag.startswith("grpo_eval_accuracy")]
    assert "grpo_kl" not in scalars


def test_tensorboard_shows_each_step_once_after_a_return_to_a_checkpoint(
    layout, step_report, evaluation_report
):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = TensorBoard(layout)
    board.begin(0, 10)
    for step in (1, 2, 3):
        board.step(step_report(step=step), {Series("grpo_loss"): float(step)})
    board.begin(1, 10)
    board.step(step_report(step=2), {Series("grpo_loss"): 20.0})
    board.evaluation(evaluation_report(step=2))
    board.close()
    events = EventAccumulator(str(layout.tensorboard)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("grpo_loss")] == [(1, 1.0), (2, 20.0)]
    assert [e.step for e in events.Scalars("grpo_eval_accuracy/held-out")] == [2]


def test_a_run_that_never_trained_leaves_no_event_file(layout):
    TensorBoard(layout).close()
    assert not layout.tensorboard.exists()
