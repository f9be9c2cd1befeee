"""What a run on one machine says of variables that only a cluster can give."""

import pytest

from grpo_trainer.driver.ray_session import cluster_only_environment, plain_environment
from grpo_trainer.spec import GRPOJobSpec

SECRET = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


def spec(**fields) -> GRPOJobSpec:
    return GRPOJobSpec.model_validate(fields)


@pytest.mark.parametrize("fields", [{}, {"env": [{"name": "A", "value": "1"}]}])
def test_plain_values_need_no_word(fields):
    assert cluster_only_environment(spec(**fields)) == []


def test_variables_from_secrets_are_named_and_the_others_set():
    job = spec(env=[SECRET, {"name": "A", "value": "1"}])
    (line,) = cluster_only_environment(job)
    assert line.startswith("spec.env: TOKEN ")
    assert plain_environment(job) == {"A": "1"}


def test_whole_secrets_are_told_of():
    (line,) = cluster_only_environment(spec(envFrom=[{"secretRef": {"name": "s"}}]))
    assert line.startswith("spec.envFrom: ")
