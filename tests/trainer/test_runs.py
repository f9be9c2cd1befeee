"""Whole runs by the command line, over real Ray, ColossalAI and transformers.

Aspects: what a run leaves behind, its endpoints, the original script's flags with several workers,
resuming after a kill as if nothing had happened, stopping, lost producers and consumers,
dynamic sampling to the end of the data, invalid input.
"""

import json
import signal
import statistics
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from grpo_trainer.builtin import addition_rows
from support.runs import GRPO, Run, manifest

Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    runs: list[Run] = []

    def begin(*arguments: str, name: str = "run") -> Run:
        runs.append(Run(tmp_path / name, *arguments))
        return runs[-1]

    yield begin
    for run in runs:
        run.end()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run of 2 producers and 2 consumers by the original's flags, on a data set of its own."""
    tmp = tmp_path_factory.mktemp("finished")
    data, held_out = tmp / "train.jsonl", tmp / "held-out.jsonl"
    rows = [json.dumps(row) for row in addition_rows("train")]
    data.write_text("\n".join(rows[:44]) + "\n")
    held_out.write_text("\n".join(rows[44:54]) + "\n")
    flags = [
        *("-m", "builtin://tiny", "-mnt", "16", "-mpt", "16", "-rt", "boxed", "-p", "sums"),
        *("-t", "2", "-i", "2", "-g", "4", "-ibs", "4", "-imbs", "2", "-e", "1"),
        *("-tbs", "4", "-tMbs", "2", "-tmbs", "8", "-ei", "3", "-si", "3"),
        *("-a", "GRPO", "-lr", "1e-4", "-kl", "0.01", "--set", "spec.rollouts.tokens=true"),
    ]
    sets = json.dumps({"held": str(held_out)})
    run = Run(tmp / "run", *flags, "-d", str(data), "-ed", sets)
    pages: dict[str, str] = {}
    try:
        run.until(lambda: run.steps >= 1)
        pages |= {path: run.get(path) for path in ("/metrics", "/progress", "/healthz")}
        pages["unauthorized"] = _drain_without_token(run)
        pages["stacks"] = Path(_post(run, "/stacks").strip()).read_text()
        assert run.wait() == 0, run.output[-3000:]
        run.pages = pages  # type: ignore[attr-defined]
        yield run
    finally:
        run.end()


def _drain_without_token(run: Run) -> str:
    url = (run.directory / "endpoint").read_text().strip() + "/drain"
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=10)
    except urllib.error.HTTPError as error:
        return str(error.code)
    return "accepted"


def _post(run: Run, path: str) -> str:
    """POST with the run's token."""
    url = (run.directory / "endpoint").read_text().strip() + path
    token = (run.directory / "drain.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, method="POST", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        body: str = response.read().decode()
    return body


def test_a_run_trains_every_prompt_once_with_a_smaller_last_step(finished: Run) -> None:
    # 44 prompts in steps of 8: five full ones and one of 4.
    assert [line["grpo_step"] for line in finished.metrics] == [1, 2, 3, 4, 5, 6]
    last = finished.metrics[-1]
    assert last["grpo_groups_total_trained"] == 44
    assert last["grpo_samples_total"] == 44 * 4


def test_the_first_step_is_on_policy(finished: Run) -> None:
    assert finished.metrics[0]["grpo_importance_ratio_mean"] == pytest.approx(1, abs=1e-2)


def test_a_run_leaves_no_process_behind(finished: Run) -> None:
    assert finished.leftovers() == []


def test_the_summary_reports_the_outcome(finished: Run) -> None:
    summary = finished.summary
    assert summary["outcome"] == "succeeded"
    assert (summary["steps"], summary["total_steps"]) == (6, 6)
    assert summary["samples"] == 44 * 4
    assert 0 <= summary["first_accuracy"]["held"] <= 1
    assert 0 < summary["efficiency"] <= 1
    assert summary["newest_checkpoint"].endswith("step-6")


def test_each_evaluation_answers_every_row_once(finished: Run) -> None:
    files = sorted((finished.directory / "eval").iterdir())
    assert [f.name for f in files] == [f"held_step_{step}.jsonl" for step in (0, 3, 6)]
    for file in files:
        sources = [json.loads(line)["source"] for line in file.read_text().splitlines()]
        assert len(sources) == len(set(sources)) == 10


def test_rollouts_are_logged_with_their_rewards(finished: Run) -> None:
    lines = (finished.directory / "rollouts" / "step_1.jsonl").read_text().splitlines()
    samples = [json.loads(line) for line in lines]
    assert len(samples) == 8 * 4
    assert {s["reward"] for s in samples} <= {0.0, 10.0}


def test_the_tokens_of_logged_rollouts_have_the_log_ratios_of_the_loss(finished: Run) -> None:
    lines = (finished.directory / "rollouts" / "step_1.jsonl").read_text().splitlines()
    samples = [json.loads(line) for line in lines]
    assert all("".join(s["tokens"]).startswith(s["completion"]) for s in samples)
    assert all(len(s["tokens"]) == len(s["log_ratios"]) == s["response_tokens"] for s in samples)
    ratios = [ratio for sample in samples for ratio in sample["log_ratios"]]
    step = finished.metrics[0]
    assert max(map(abs, ratios)) == pytest.approx(step["grpo_log_importance_ratio_max"], abs=1e-3)
    assert statistics.pstdev(ratios) == pytest.approx(
        step["grpo_log_importance_ratio_std"], abs=1e-3
    )


def test_checkpoints_load_into_transformers(finished: Run) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = finished.directory / "checkpoints" / "step-6"
    assert (path / "COMPLETE").exists()
    _, info = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
    assert not any(info.values())
    assert AutoTokenizer.from_pretrained(path).chat_template


def test_the_driver_serves_metrics_and_progress_and_guards_the_drain(finished: Run) -> None:
    pages = finished.pages  # type: ignore[attr-defined]
    names = {family.name for family in text_string_to_metric_families(pages["/metrics"])}
    assert {"grpo_step", "grpo_buffer_depth", "grpo_consumer_idle_ratio"} <= names
    progress = json.loads(pages["/progress"])
    assert progress["state"] == "running"
    assert progress["workers"]["consumersReady"] == 2
    assert pages["unauthorized"] == "401"


def test_a_run_reports_the_stacks_of_all_its_processes(finished: Run) -> None:
    text = finished.pages["stacks"]  # type: ignore[attr-defined]
    for name in ("driver", "consumer-0", "consumer-1", "producer-0", "producer-1"):
        assert f"=== {name}\n" in text
    assert text.count("thread MainThread") == 5


def test_a_killed_run_resumes_as_if_it_had_never_stopped(start: Start, tmp_path: Path) -> None:
    # Long enough that the kill comes before the end, short enough to be run twice.
    file = manifest(tmp_path / "job.yaml", maxSteps=8)
    whole = start(str(file), name="whole")
    assert whole.wait() == 0, whole.output[-3000:]
    broken = start(str(file), name="broken")
    broken.until(lambda: (broken.directory / "checkpoints/step-2/COMPLETE").exists())
    broken.remember_children()
    broken.process.send_signal(signal.SIGKILL)
    broken.process.wait(10)
    assert broken.leftovers(60) == []
    resumed = Run(broken.directory, str(file))
    try:
        assert resumed.wait() == 0, resumed.output[-3000:]
        for key in ("grpo_step", "grpo_loss", "grpo_reward_mean", "grpo_gradient_norm"):
            expected = [line[key] for line in whole.metrics]
            assert [line[key] for line in resumed.metrics] == expected, key
    finally:
        resumed.end()


def test_sigterm_leaves_a_checkpoint(start: Start, tmp_path: Path) -> None:
    file = manifest(
        tmp_path / "job.yaml", maxSteps=5000, numEpisodes=100, checkpoint={"interval": 0}
    )
    run = start(str(file))
    run.until(lambda: run.steps >= 3)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait(60) == 75
    assert run.summary["outcome"] == "stopped"
    assert run.summary["newest_checkpoint"].endswith(f"step-{run.steps}")
    assert run.leftovers() == []


def test_a_second_interrupt_ends_at_once(start: Start, tmp_path: Path) -> None:
    run = start(str(manifest(tmp_path / "job.yaml", maxSteps=5000, numEpisodes=100)))
    run.until(lambda: run.steps >= 1)
    run.process.send_signal(signal.SIGINT)
    run.process.send_signal(signal.SIGINT)
    assert run.wait(20) in (75, 130)
    assert run.leftovers() == []


def test_drain_by_the_endpoint_ends_with_a_checkpoint(start: Start, tmp_path: Path) -> None:
    # With batches always ready, the loop must check the request to stop all the same.
    buffer = {"maxStaleness": 8, "maxPrompts": 64}
    file = manifest(tmp_path / "job.yaml", maxSteps=5000, numEpisodes=100, buffer=buffer)
    run = start(str(file))
    run.until(lambda: run.steps >= 1)
    assert _post(run, "/drain").strip() == "draining"
    requested_at = run.steps
    assert run.wait(60) == 75
    assert run.steps <= requested_at + 2


def test_training_survives_a_lost_producer_and_a_lost_consumer(
    start: Start, tmp_path: Path
) -> None:
    file = manifest(
        tmp_path / "job.yaml",
        maxSteps=150,
        numEpisodes=2,
        producers={"replicas": 2},
        buffer={"maxStaleness": 2},
        checkpoint={"interval": 10},
    )
    run = start(str(file))
    run.until(lambda: run.steps >= 5 and len(run.actors("Producer")) == 2)
    run.actors("Producer")[0].kill()
    run.until(lambda: run.steps >= 15)
    run.actors("Consumer")[0].kill()
    assert run.wait() == 0, run.output[-3000:]
    last = run.metrics[-1]
    assert [line["grpo_step"] for line in run.metrics] == list(range(1, 151))
    assert last["grpo_restarts_total_producer"] >= 1
    assert last["grpo_restarts_total_consumer"] == 1
    assert last["grpo_groups_total_trained"] == 150 * 8
    assert last["grpo_groups_total_dropped"] == 0
    assert run.leftovers() == []


def test_dynamic_sampling_ends_well_with_the_data(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    rows = [json.dumps(row) for row in addition_rows("train")]
    data.write_text("\n".join(rows[:60]))
    file = manifest(
        tmp_path / "job.yaml",
        dataset={"path": str(data)},
        algorithm={"name": "DAPO"},
        buffer={"maxStaleness": 1},
        maxSteps=100,
    )
    run = start(str(file))
    assert run.wait() == 0, run.output[-3000:]
    last = run.metrics[-1]
    trained = last["grpo_groups_total_trained"]
    filtered = last["grpo_groups_total_filtered"]
    assert trained + filtered == 60
    assert filtered > 0
    assert all(line["grpo_accuracy_mean"] not in (0, 1) for line in run.metrics)


def test_invalid_data_end_a_run_before_anything_is_loaded(tmp_path: Path) -> None:
    data = tmp_path / "bad.jsonl"
    data.write_text('{"messages": {"role": "user", "content": "1+1="}, "gt_answer": null}\n')
    file = manifest(tmp_path / "job.yaml", dataset={"path": str(data)})
    done = subprocess.run(
        [*GRPO, "run", str(file), "--run-dir", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 64
    assert f"{data} line 1" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "summary.json").exists()
