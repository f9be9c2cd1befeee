"""Weights & Biases, MLflow and Trackio by their own libraries, without a network: what each keeps
of a run, and of a run that is resumed."""

import json
import logging
import threading

import pytest

from grpo_trainer.errors import RunFailedError
from grpo_trainer.events import Outcome
from grpo_trainer.reporting.metrics import Series
from grpo_trainer.reporting.tracking import make_trackers, reach_trackers
from grpo_trainer.reporting.tracking.background import BackgroundCalls
from grpo_trainer.spec import GRPOJob, GRPOJobSpec, parse_manifest

LOSS = Series("grpo_loss")


@pytest.fixture(autouse=True)
def home(layout, tmp_path, monkeypatch):
    """Nothing of the user's own trackers is read or written."""
    layout.create()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")


def job_with(**trackers: object) -> GRPOJob:
    manifest = GRPOJob().to_manifest()
    manifest["metadata"] = {"name": "sums"}
    manifest["spec"] = {"tracking": {"project": "math", "tensorboard": False, **trackers}}
    return parse_manifest(manifest)


@pytest.fixture
def record(layout, step_report, evaluation_report, logged_sample, summary):
    """Report one step of a run, with an evaluation and completions, and end the run."""

    def report(job: GRPOJob, step: int = 1, outcome: Outcome | None = None) -> None:
        (tracker,) = make_trackers(job, layout)
        tracker.begin(step - 1, 10)
        tracker.step(step_report(step=step), {LOSS: 0.5, Series("grpo_step"): float(step)})
        tracker.evaluation(evaluation_report(step=step, dataset="held out é"))
        tracker.rollouts(step, [logged_sample(completion="a\ud800")])
        if outcome is not None:
            tracker.finish(summary)
        tracker.close()

    return report


def test_wandb_keeps_metrics_hyperparameters_and_a_table_of_completions(layout, record):
    import wandb

    record(job_with(wandb={}))
    wandb.teardown()  # its process has written its files when it has ended
    (run,) = layout.root.glob("wandb/offline-run-*")
    (table,) = run.glob("files/media/table/rollout/completions_*.table.json")
    kept = json.loads(table.read_text())
    assert kept["columns"][-1] == "completion"
    assert kept["data"] == [[1, 0.0, -0.5, "2", "1+1=", "a\\ud800"]]
    (log,) = run.glob("*.wandb")
    content = log.read_bytes()
    for name in (b"train/loss", b"eval/held out", b"algorithm.learningRate"):
        assert name in content


def test_mlflow_continues_its_run_when_the_directory_is_resumed(layout, record, tmp_path):
    import mlflow

    uri = f"sqlite:///{tmp_path}/runs.db"
    job = job_with(mlflow={"trackingUri": uri})
    record(job, step=1)
    record(job, step=2, outcome=Outcome.SUCCEEDED)
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("math")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "sums"
    assert run.info.status == "FINISHED"
    assert run.data.params["algorithm.learningRate"] == "1e-06"
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(each.step, each.value) for each in history] == [(1, 0.5), (2, 0.5)]
    assert run.data.metrics["eval/held out _/accuracy"] == 0.5
    texts = client.list_artifacts(run.info.run_id, "rollouts")
    assert [text.path for text in texts] == ["rollouts/step_1.md", "rollouts/step_2.md"]


def test_trackio_continues_its_run_when_the_directory_is_resumed(
    layout, record, tmp_path, monkeypatch, capsys
):
    import trackio.sqlite_storage as storage

    monkeypatch.setattr(storage, "TRACKIO_DIR", tmp_path / "trackio")
    record(job_with(trackio={}), step=1)
    record(job_with(trackio={}), step=2)
    assert capsys.readouterr().out == ""
    (name,) = storage.SQLiteStorage.get_runs("math")
    assert name == f"sums-{layout.trackio_id.read_text()}"
    rows = storage.SQLiteStorage.get_logs("math", name)
    assert [row["step"] for row in rows if "train/loss" in row] == [1, 2]
    assert [row["step"] for row in rows if row.get("eval/held out é/accuracy") == 0.5] == [1, 2]
    texts = [row["rollout/completions"] for row in rows if "rollout/completions" in row]
    assert "reference answer 2" in texts[0]["_value"]
    config = storage.SQLiteStorage.get_run_config("math", name)
    assert config["algorithm.learningRate"] == 1e-06


def test_a_server_that_does_not_answer_is_a_failure_before_the_start(unused_tcp_port):
    uri = f"http://127.0.0.1:{unused_tcp_port}"
    spec = GRPOJobSpec.model_validate({"tracking": {"mlflow": {"trackingUri": uri}}})
    words = rf"^spec\.tracking\.mlflow: no answer from {uri}: .*Connection refused$"
    with pytest.raises(RunFailedError, match=words):
        reach_trackers(spec)


def test_a_server_that_is_lost_delays_nobody_and_is_reported_once(caplog):
    def fail() -> None:
        raise OSError("no route to host")

    calls, made = BackgroundCalls("MLflow"), []
    with caplog.at_level(logging.WARNING):
        for call in (fail, fail, lambda: made.append(1)):
            calls.submit(call)
        calls.close()
    assert made == [1]
    assert caplog.messages == [
        "MLflow: reports are lost: no route to host",
        "MLflow: 2 reports were lost",
    ]


def test_a_server_that_hangs_does_not_keep_a_run_from_ending(caplog):
    stuck = threading.Event()
    calls = BackgroundCalls("MLflow")
    calls.submit(stuck.wait)
    with caplog.at_level(logging.WARNING):
        calls.close(seconds=0.0)
    stuck.set()
    assert "reports were lost" in caplog.messages[-1]
