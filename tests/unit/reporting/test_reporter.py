"""The reporter: one call reaches files, metrics, progress and terminal; a resumed run continues the
journal; everything is closed at the end."""

import io
import json
from pathlib import Path

import aiohttp
import pytest
from rich.console import Console

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.events import CheckpointReport, WorkerReport
from grpo_trainer.options import RunOptions
from grpo_trainer.reporting import Reporter, RunPaths, open_reporter
from grpo_trainer.spec import GRPOJob, RunState, parse_manifest


@pytest.fixture
def job() -> GRPOJob:
    manifest = GRPOJob().to_manifest()
    return parse_manifest({**manifest, "spec": {"tracking": {"tensorboard": False}}})


def quiet() -> Console:
    return Console(file=io.StringIO())


def steps_in(layout: RunPaths) -> list[int]:
    rows = [json.loads(line) for line in layout.metrics.read_text().splitlines()]
    return [row["grpo_step"] for row in rows if row["event"] == "step"]


async def get(layout: RunPaths, path: str) -> str:
    url = layout.endpoint.read_text().strip()
    async with aiohttp.ClientSession(url) as client, client.get(path) as response:
        return await response.text()


def nothing() -> None:
    """No stop is requested."""


async def stacks() -> Path:
    raise AssertionError("no stacks are requested")


async def test_one_report_reaches_file_metrics_progress_and_terminal(
    job, options, layout, step_report
):
    console = quiet()
    async with open_reporter(job, options, nothing, stacks, console) as reporter:
        reporter.begin(0, 10)
        reporter.step(step_report())
        assert "grpo_reward_mean 4.5" in await get(layout, "/metrics")
        assert json.loads(await get(layout, "/progress"))["progress"]["step"] == 1
        assert reporter.progress.progress.step == 1
    assert steps_in(layout) == [1]
    assert "step 1/10" in console.file.getvalue()


async def test_every_kind_of_report_is_recorded(
    job, options, layout, step_report, evaluation_report, logged_sample, summary
):
    async with open_reporter(job, options, nothing, stacks, quiet()) as reporter:
        reporter.workers(WorkerReport(2, 2, 2, 2))
        reporter.begin(0, 10)
        reporter.evaluation(evaluation_report())
        reporter.restart("producer")
        reporter.rollouts(1, [logged_sample()])
        reporter.checkpoint(CheckpointReport(step=1, path="p", seconds=0.5))
        reporter.step(step_report())
        reporter.message("done soon")
        reporter.finish(summary)
        assert reporter.progress.state is RunState.SUCCEEDED
        assert reporter.progress.workers.producers_ready == 2
    evaluation, step = map(json.loads, layout.metrics.read_text().splitlines())
    assert (evaluation["dataset"], evaluation["grpo_eval_accuracy"]) == ("held-out", 0.5)
    assert step["grpo_restarts_total_producer"] == 1
    assert step["grpo_checkpoint_step"] == 1
    assert layout.rollout(1).exists()
    assert layout.evaluation("held-out", 0).exists()
    assert layout.summary.exists()


async def run_steps(reporter: Reporter, step_report, first: int, last: int) -> None:
    for step in range(first, last + 1):
        reporter.step(step_report(step=step))


async def test_a_resumed_run_continues_the_journal_and_its_totals(
    job, options, layout, step_report
):
    async with open_reporter(job, options, nothing, stacks, quiet()) as reporter:
        reporter.begin(0, 10)
        await run_steps(reporter, step_report, 1, 5)
    async with open_reporter(job, options, nothing, stacks, quiet()) as reporter:
        reporter.begin(3, 10)
        assert reporter.progress.progress.step == 3
        assert "grpo_step 3.0" in await get(layout, "/metrics")
        await run_steps(reporter, step_report, 4, 6)
    assert steps_in(layout) == [1, 2, 3, 4, 5, 6]
    last = json.loads(layout.metrics.read_text().splitlines()[-1])
    assert last["grpo_samples_total"] == 8 * 64


async def test_a_rollback_in_one_process_rewrites_the_lost_steps(job, options, layout, step_report):
    async with open_reporter(job, options, nothing, stacks, quiet()) as reporter:
        reporter.begin(0, 10)
        await run_steps(reporter, step_report, 1, 4)
        reporter.restart("consumer")
        reporter.begin(2, 10)
        await run_steps(reporter, step_report, 3, 3)
    assert steps_in(layout) == [1, 2, 3]
    last = json.loads(layout.metrics.read_text().splitlines()[-1])
    assert last["grpo_restarts_total_consumer"] == 1


async def test_a_drain_request_reaches_the_driver_and_the_progress(job, tmp_path):
    options, asked = RunOptions(tmp_path, port=0, token="t"), []
    async with open_reporter(job, options, lambda: asked.append(True), stacks, quiet()) as reporter:
        url = RunPaths.of(options).endpoint.read_text().strip()
        async with (
            aiohttp.ClientSession(url) as client,
            client.post("/drain", headers={"Authorization": "Bearer t"}),
        ):
            assert asked == [True]
        assert reporter.progress.state is RunState.DRAINING


async def test_a_driver_that_fails_removes_its_endpoint_and_raises(job, options, layout):
    with pytest.raises(RuntimeError, match="out of memory"):
        async with open_reporter(job, options, nothing, stacks, quiet()):
            raise RuntimeError("out of memory")
    assert not layout.endpoint.exists()
    assert layout.spec.exists()


async def test_a_tracker_that_cannot_work_fails_the_run_before_it_creates_a_file(
    options, layout, monkeypatch
):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("HOME", str(options.run_dir.parent))
    manifest = GRPOJob().to_manifest() | {"spec": {"tracking": {"wandb": {}}}}
    with pytest.raises(InvalidInputError, match=r"spec\.tracking\.wandb"):
        async with open_reporter(parse_manifest(manifest), options, nothing, stacks, quiet()):
            pass
    assert not layout.root.exists()
