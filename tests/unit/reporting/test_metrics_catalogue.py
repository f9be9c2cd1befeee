"""The catalogue of metrics: published names and labels, accumulation of values, the text of series,
restored values."""

from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_trainer.events import CheckpointReport
from grpo_trainer.reporting.metric import Kind
from grpo_trainer.reporting.metrics import EXTRAS, LABELS, METRICS, MetricValues, Series

PUBLISHED = {
    "grpo_step": None,
    "grpo_total_steps": None,
    "grpo_episode": None,
    "grpo_reward_mean": None,
    "grpo_reward_part_mean": "part",
    "grpo_accuracy_mean": None,
    "grpo_format_accuracy_mean": None,
    "grpo_response_tokens_mean": None,
    "grpo_samples_total": None,
    "grpo_tokens_total": "kind",
    "grpo_groups_total": "outcome",
    "grpo_buffer_depth": None,
    "grpo_buffer_capacity": None,
    "grpo_staleness_versions": None,
    "grpo_consumer_idle_ratio": None,
    "grpo_producer_idle_ratio": None,
    "grpo_phase_seconds_total": "phase",
    "grpo_weight_version": None,
    "grpo_weight_publish_seconds": None,
    "grpo_weight_apply_seconds": None,
    "grpo_weight_delta_ratio": None,
    "grpo_weight_differences_total": None,
    "grpo_engine_mismatch": None,
    "grpo_loss": None,
    "grpo_kl": None,
    "grpo_entropy": None,
    "grpo_bounded_weight_ratio": None,
    "grpo_clip_ratio": "side",
    "grpo_importance_ratio_mean": None,
    "grpo_behaviour_kl": None,
    "grpo_log_importance_ratio": "statistic",
    "grpo_effective_sample_ratio": None,
    "grpo_nonfinite_logprobs_total": "unit",
    "grpo_nonfinite_steps_total": None,
    "grpo_gradient_norm": None,
    "grpo_learning_rate": None,
    "grpo_eval_accuracy": "dataset",
    "grpo_eval_pass_at_k": "dataset",
    "grpo_checkpoint_step": None,
    "grpo_checkpoint_seconds": None,
    "grpo_scoring_errors_total": "reason",
    "grpo_restarts_total": "role",
}


def test_the_catalogue_contains_exactly_the_published_names_and_labels():
    assert {metric.name: metric.label for metric in METRICS} == PUBLISHED


def test_counters_end_in_total_and_nothing_else_does():
    for metric in METRICS:
        counts = metric.name.endswith("_total")
        assert counts == (metric.kind is Kind.COUNTER), metric.name


def test_increments_of_a_step_add_up_and_totals_replace_each_other(step_report):
    values = MetricValues()
    values.step(step_report())
    values.step(step_report(step=2, samples=32))
    assert values.current[Series("grpo_samples_total")] == 96
    assert values.current[Series("grpo_tokens_total", "response")] == 1280
    assert values.current[Series("grpo_phase_seconds_total", "train")] == 2.5
    assert values.current[Series("grpo_groups_total", "trained")] == 8
    assert values.current[Series("grpo_step")] == 2


def test_a_time_that_was_not_measured_has_no_value(step_report):
    values = MetricValues()
    values.step(step_report(apply_seconds=None))
    assert Series("grpo_weight_apply_seconds") not in values.current


def test_events_between_steps_set_their_metrics(evaluation_report):
    values = MetricValues()
    values.evaluation(evaluation_report())
    values.checkpoint(CheckpointReport(step=5, path="p", seconds=1.5))
    values.restart("producer")
    values.restart("producer")
    assert values.current == {
        Series("grpo_eval_accuracy", "held-out"): 0.5,
        Series("grpo_checkpoint_step"): 5,
        Series("grpo_checkpoint_seconds"): 1.5,
        Series("grpo_restarts_total", "producer"): 2,
    }


def test_restored_totals_continue_and_yield_to_values_of_this_process(step_report):
    values = MetricValues()
    values.restart("consumer")
    samples, restarts = Series("grpo_samples_total"), Series("grpo_restarts_total", "consumer")
    values.restore({samples: 100, restarts: 9})
    values.step(step_report())
    assert values.current[samples] == 164
    assert values.current[restarts] == 1


@settings(deadline=None)
@given(st.sampled_from(sorted(LABELS)), st.text())
def test_a_series_is_read_back_as_written_whatever_its_label(name, label):
    series = Series(name, label)
    assert Series.parse(str(series)) == series


def test_the_text_of_a_series_ends_in_its_label():
    assert str(Series("grpo_clip_ratio", "low")) == "grpo_clip_ratio_low"
    assert str(Series("grpo_loss")) == "grpo_loss"
    assert Series.parse("grpo_loss") == Series("grpo_loss")
    assert Series.parse("time") is None


def test_no_metric_can_be_mistaken_for_a_series_of_another():
    names = [metric.name for metric in METRICS + EXTRAS]
    assert [n for n in names for labelled in LABELS if n.startswith(f"{labelled}_")] == []


def test_every_metric_has_a_section_of_the_trackers():
    sections = {metric.name: str(metric.section) for metric in METRICS}
    assert sections["grpo_loss"] == "train"
    assert sections["grpo_reward_mean"] == "rollout"
    assert sections["grpo_eval_accuracy"] == "eval"
    assert sections["grpo_consumer_idle_ratio"] == "perf"
