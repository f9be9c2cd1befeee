"""The text that Prometheus scrapes: it parses, contains every published name with its type, counts
staleness, and its counters never decrease."""

import re

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from grpo_trainer.events import CheckpointReport, GroupCounts
from grpo_trainer.reporting.metrics import METRICS, MetricValues
from grpo_trainer.reporting.prometheus import Exposition


@pytest.fixture
def values() -> MetricValues:
    return MetricValues()


@pytest.fixture
def exposition(values) -> Exposition:
    return Exposition(values)


def report(values: MetricValues, exposition: Exposition, step) -> None:
    values.step(step)
    exposition.step(step, values.current)


def samples(exposition: Exposition) -> dict[tuple[str, tuple], float]:
    families = text_string_to_metric_families(exposition.render().decode())
    return {(s.name, tuple(s.labels.values())): s.value for f in families for s in f.samples}


def test_every_metric_has_a_type_before_it_has_a_value(exposition):
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposition.render().decode(), re.MULTILINE))
    assert types == {metric.name: str(metric.kind) for metric in METRICS}


def test_a_step_gives_every_metric_a_value(values, exposition, step_report, evaluation_report):
    report(values, exposition, step_report(apply_seconds=0.125, delta_share=0.02))
    values.evaluation(evaluation_report(pass_at={2: 0.5}))
    values.checkpoint(CheckpointReport(step=1, path="p", seconds=2.0))
    values.restart("producer")
    found = samples(exposition)
    names = {name for name, _ in found}
    assert {m.name for m in METRICS} - names == {"grpo_staleness_versions"}
    assert found["grpo_loss", ()] == -0.01
    assert found["grpo_tokens_total", ("response",)] == 640
    assert found["grpo_clip_ratio", ("low",)] == 0.01
    assert found["grpo_eval_accuracy", ("held-out",)] == 0.5
    assert found["grpo_restarts_total", ("producer",)] == 1
    assert found["grpo_scoring_errors_total", ("timeout",)] == 1


def test_staleness_is_a_histogram_over_groups(values, exposition, step_report):
    report(values, exposition, step_report(staleness=(0, 0, 1, 3)))
    report(values, exposition, step_report(step=2, staleness=(2, 40)))
    found = samples(exposition)
    buckets = {
        bound: found["grpo_staleness_versions_bucket", (bound,)]
        for bound in ("0.0", "1.0", "2.0", "4.0", "16.0", "+Inf")
    }
    assert buckets == {"0.0": 2, "1.0": 3, "2.0": 4, "4.0": 5, "16.0": 5, "+Inf": 6}
    assert found["grpo_staleness_versions_count", ()] == 6
    assert found["grpo_staleness_versions_sum", ()] == 46


def test_a_counter_does_not_decrease_after_a_rollback(values, exposition, step_report):
    report(values, exposition, step_report(step=9, groups=GroupCounts(trained=72)))
    before = samples(exposition)["grpo_groups_total", ("trained",)]
    report(values, exposition, step_report(step=5, groups=GroupCounts(trained=40)))
    assert samples(exposition)["grpo_groups_total", ("trained",)] == before == 72
    assert samples(exposition)["grpo_step", ()] == 5


def test_labels_may_contain_quotes_backslashes_and_line_ends(values, exposition, evaluation_report):
    name = 'a "b" \\ c\nd'
    values.evaluation(evaluation_report(dataset=name))
    assert samples(exposition)["grpo_eval_accuracy", (name,)] == 0.5


def test_two_runs_in_one_process_do_not_share_a_registry(exposition, step_report):
    other = MetricValues()
    report(other, Exposition(other), step_report())
    assert ("grpo_step", ()) not in samples(exposition)
    assert not [f for f in REGISTRY.collect() if f.name.startswith("grpo")]
