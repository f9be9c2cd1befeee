"""What may change between the starts of one run, and how the rest is reported."""

import pytest

from grpo_trainer.cli.resume import spec_differences
from grpo_trainer.spec import GRPOJob, GRPOJobSpec, parse_manifest


def spec(**sections) -> GRPOJobSpec:
    return parse_manifest({**GRPOJob().to_manifest(), "spec": sections}).spec


def test_a_spec_continues_itself():
    full = spec(env=[{"name": "A"}], evaluation={"datasets": {"a": "b"}}, storage={"size": "1Gi"})
    assert spec_differences(full, full) == []


@pytest.mark.parametrize(
    "change",
    [
        {"suspend": True},
        {"producers": {"replicas": 5}},
        {"backoffLimit": 0},
        {"activeDeadlineSeconds": 60},
        {"startupDeadlineSeconds": 60},
        {"stallTimeoutSeconds": 60},
        {"ttlSecondsAfterFinished": 0},
        {"env": [{"name": "A", "value": "b"}]},
        {"consumers": {"resources": {"limits": {"memory": "8Gi"}}}},
        {"head": {"podTemplate": {"spec": {"hostNetwork": True}}}},
        {"queueName": "gpus"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_may_change_in_a_cluster_may_change_here(change):
    assert spec_differences(spec(), spec(**change)) == []
    assert spec_differences(spec(**change), spec()) == []


def test_a_difference_names_field_value_and_what_the_run_has():
    (fault,) = spec_differences(spec(), spec(algorithm={"learningRate": 1e-5}))
    assert str(fault) == (
        "spec.algorithm.learningRate: Invalid value: 1e-05: must be 1e-06, as in the run so far"
    )


def test_all_differences_are_reported_added_and_removed_ones_too():
    old = spec(evaluation={"datasets": {"a": "x", "b": "y"}}, seed=1)
    new = spec(evaluation={"datasets": {"a": "z", "c": "y"}}, tracking={"wandb": {}})
    assert {fault.path for fault in spec_differences(old, new)} == {
        "spec.evaluation.datasets.a",
        "spec.evaluation.datasets.b",
        "spec.evaluation.datasets.c",
        "spec.seed",
        "spec.tracking.wandb",
    }


def test_producers_may_be_scaled_but_not_altered():
    changed = spec(producers={"replicas": 5, "backend": "vllm"})
    assert [f.path for f in spec_differences(spec(), changed)] == ["spec.producers.backend"]


@pytest.mark.parametrize(("before", "after"), [(10, 20), (10, None), (10, 10), (None, None)])
def test_a_run_may_train_longer(before, after):
    assert spec_differences(spec(maxSteps=before), spec(maxSteps=after)) == []


@pytest.mark.parametrize(
    ("before", "after", "must"),
    [(20, 10, "must be 20 or more"), (None, 10, "must be absent")],
)
def test_a_run_may_not_be_cut_short_afterwards(before, after, must):
    (fault,) = spec_differences(spec(maxSteps=before), spec(maxSteps=after))
    assert (fault.path, fault.value) == ("spec.maxSteps", after)
    assert must in fault.must
