"""Reports with plausible values, to be varied by the tests."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_trainer.events import (
    EvaluatedSample,
    EvaluationReport,
    LoggedSample,
    Outcome,
    StepReport,
    Summary,
)
from grpo_trainer.options import RunOptions
from grpo_trainer.reporting.journal import Journal
from grpo_trainer.reporting.paths import RunPaths
from grpo_trainer.spec import GRPOJob
from support import reports


@pytest.fixture
def step_report() -> Callable[..., StepReport]:
    """A report of step 1 of 10, with the changes given."""
    return reports.step_report


@pytest.fixture
def evaluation_report() -> Callable[..., EvaluationReport]:
    sample = EvaluatedSample(
        source="test.jsonl row 1",
        prompt="1+1=",
        completion="2",
        answer="2",
        reward=10.0,
        accuracy=1.0,
        format_accuracy=1.0,
        response_tokens=2,
        finish_reason="stop",
    )
    report = EvaluationReport(
        step=0,
        dataset="held-out",
        accuracy=0.5,
        format_accuracy=1.0,
        response_tokens_mean=2.0,
        seconds=0.5,
        samples=(sample, sample),
    )
    return lambda **changes: replace(report, **changes)


@pytest.fixture
def logged_sample() -> Callable[..., LoggedSample]:
    sample = LoggedSample(
        source="train.jsonl row 7",
        prompt="1+1=",
        completion="3",
        answer="2",
        reward=0.0,
        accuracy=0.0,
        format_accuracy=1.0,
        advantage=-0.5,
        version=3,
        response_tokens=2,
        finish_reason="stop",
    )
    return lambda **changes: replace(sample, **changes)


@pytest.fixture
def summary() -> Summary:
    return Summary(
        outcome=Outcome.SUCCEEDED,
        message="",
        steps=10,
        total_steps=10,
        first_accuracy={"held-out": 0.25},
        last_accuracy={"held-out": 0.75},
        first_reward=2.5,
        last_reward=7.5,
        samples=640,
        scored_samples=600,
        wall_seconds=75.0,
        train_seconds=64.0,
        samples_per_second=10.0,
        efficiency=0.97,
        consumer_idle_ratio=0.03,
        newest_checkpoint="runs/x/checkpoints/step-10",
        run_directory="runs/x",
    )


@pytest.fixture
def options(tmp_path: Path) -> RunOptions:
    return RunOptions(run_dir=tmp_path / "run", port=0)


@pytest.fixture
def layout(options: RunOptions) -> RunPaths:
    return RunPaths.of(options)


@pytest.fixture
def journal(layout: RunPaths) -> Journal:
    return Journal(layout, GRPOJob())
