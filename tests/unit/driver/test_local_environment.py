"""The environment of a run on one machine: variables of a cluster, and what is inherited."""

import tempfile
from pathlib import Path

import pytest

from grpo_trainer.driver.local_environment import (
    MAX_TEMP_PATH,
    ray_directory,
    remove_foreign_ray_variables,
    temp_variables,
)
from grpo_trainer.driver.ray_session import cluster_only_environment, plain_environment
from grpo_trainer.errors import InvalidInputError
from grpo_trainer.spec import GRPOJobSpec

SECRET = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


def spec(**fields) -> GRPOJobSpec:
    return GRPOJobSpec.model_validate(fields)


@pytest.mark.parametrize("fields", [{}, {"env": [{"name": "A", "value": "1"}]}])
def test_plain_values_need_no_warning(fields):
    assert cluster_only_environment(spec(**fields)) == []


def test_variables_from_secrets_are_named_and_the_others_set():
    job = spec(env=[SECRET, {"name": "A", "value": "1"}])
    (line,) = cluster_only_environment(job)
    assert line.startswith("spec.env: TOKEN: ")
    assert plain_environment(job) == {"A": "1"}


def test_whole_secrets_are_named():
    (line,) = cluster_only_environment(spec(envFrom=[{"secretRef": {"name": "s"}}]))
    assert line.startswith("spec.envFrom: ")


def test_variables_of_another_ray_are_removed_and_those_that_tune_it_stay():
    environment = {
        **{"RAY_ADDRESS": "10.0.0.1:6379", "RAY_TMPDIR": "/x", "RAY_RUNTIME_ENV_HOOK": "a.b"},
        **{"RAY_AUTH_TOKEN": "t", "RAY_worker_niceness": "3", "PATH": "/bin"},
    }
    remove_foreign_ray_variables(environment)
    assert environment == {"RAY_AUTH_TOKEN": "t", "RAY_worker_niceness": "3", "PATH": "/bin"}


def test_sockets_of_ray_have_legal_paths_whatever_the_temporary_directory(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    directory = ray_directory(None)
    try:
        assert len(str(directory.parent)) <= MAX_TEMP_PATH
        assert temp_variables(directory) == {"TMPDIR": str(directory)}
    finally:
        directory.rmdir()


def test_a_short_temporary_directory_is_used_and_passed_on(tmp_path, monkeypatch):
    short = Path("/tmp")
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    directory = ray_directory(None)
    directory.rmdir()
    assert directory.parent == short
    assert temp_variables(directory) == {}


def test_a_requested_directory_with_too_long_a_path_is_refused_with_the_limit(tmp_path):
    with pytest.raises(InvalidInputError, match=f"at most {MAX_TEMP_PATH} bytes"):
        ray_directory(tmp_path / ("x" * 100))
