"""Step reports with plausible values, to be varied by tests."""

from dataclasses import fields, replace
from typing import Any

from grpo_trainer.algorithm.batching import StepStatistics
from grpo_trainer.algorithm.totals import LossSums
from grpo_trainer.events import GroupCounts, PipelineState, StepReport

_STEP = StepReport(
    step=1,
    total_steps=10,
    episode=0,
    seconds=2.0,
    phase_seconds={"take": 0.06, "train": 1.25, "publish": 0.25},
    statistics=StepStatistics(
        samples=64,
        scored_samples=64,
        unscored={},
        trained_samples=64,
        prompt_tokens=320,
        response_tokens=640,
        reward_mean=4.5,
        reward_std=2.25,
        zero_std_fraction=0.125,
        accuracy_mean=0.45,
        format_accuracy_mean=0.9,
        response_tokens_mean=10.0,
        truncated_fraction=0.0625,
        reward_parts={"right": 0.45, "brief": 0.75},
        nonfinite_samples=0,
        nonfinite_tokens=0,
    ),
    sums=LossSums(
        tokens=1000,
        loss=-0.01,
        kl=2.0,
        entropy=1500.0,
        ratio=1001.0,
        ratio_squared=1012.0,
        log_ratio=-2.0,
        log_ratio_squared=10.0,
        max_log_ratio=0.5,
        behaviour_kl=5.0,
        clipped_low=10,
        clipped_high=20,
    ),
    gradient_norm=0.7,
    learning_rate=1e-6,
    staleness=(0, 0, 1, 3),
    pipeline=PipelineState(
        buffer_depth=5,
        buffer_capacity=16,
        groups=GroupCounts(trained=8, filtered=1, dropped=0, requeued=2),
        producer_idle_ratio=0.2,
        publish_seconds=0.25,
        apply_seconds=None,
        engine_mismatch=0.001,
        scoring_errors={"timeout": 1},
    ),
)
_PARTS = ("statistics", "sums", "pipeline")


def step_report(**changes: Any) -> StepReport:
    """A report of step 1 of 10; a change names a field of the report or of one of its parts."""
    report = _STEP
    for part in _PARTS:
        record = getattr(report, part)
        inside = {f.name: changes.pop(f.name) for f in fields(record) if f.name in changes}
        report = replace(report, **{part: replace(record, **inside)})
    return replace(report, **changes)
