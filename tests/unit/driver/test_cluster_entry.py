"""The driver's entry in a cluster: what it reads from the environment and the mounted spec."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_trainer.cluster import ClusterEnvironment, read_job
from grpo_trainer.errors import InvalidInputError
from grpo_trainer.spec import GRPOJob, Metadata


def test_the_environment_has_the_run_directory_and_the_attempt() -> None:
    found = ClusterEnvironment.read(
        {"GRPO_RUN_DIR": "/data/runs/a-1", "GRPO_ATTEMPT": "2", "RAY_AUTH_TOKEN": "secret"}
    )
    assert found.run_dir == Path("/data/runs/a-1")
    assert (found.attempt, found.token) == (2, "secret")
    assert found.spec_file == Path("/etc/grpo/spec.json")


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({}, "GRPO_RUN_DIR"),
        ({"GRPO_RUN_DIR": "/d", "GRPO_ATTEMPT": "x"}, 'GRPO_ATTEMPT: Invalid value: "x"'),
    ],
)
def test_a_missing_or_invalid_variable_is_named(environment: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        ClusterEnvironment.read(environment)


def test_the_spec_is_read_from_the_file(tmp_path: Path) -> None:
    job = GRPOJob(metadata=Metadata(name="math"))
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(job.to_manifest()))
    assert read_job(path) == job


def files(directory: Path, given: dict[str, Any], resolved: dict[str, Any]) -> tuple[Path, Path]:
    """The mounted files with these fields of the spec."""
    paths = directory / "spec.json", directory / "resolved.json"
    manifest = GRPOJob(metadata=Metadata(name="math")).to_manifest()
    for path, spec in zip(paths, (given, resolved), strict=True):
        path.write_text(json.dumps({**manifest, "spec": spec}))
    return paths


def test_defaults_are_those_of_the_operator_not_of_this_version(tmp_path: Path) -> None:
    paths = files(tmp_path, {"seed": 7}, {"seed": 7, "batch": {"trainBatchSize": 16}, "later": 1})
    spec = read_job(*paths).spec
    assert (spec.seed, spec.batch.train_batch_size) == (7, 16)


def test_a_field_that_is_set_and_unknown_here_is_refused(tmp_path: Path) -> None:
    paths = files(tmp_path, {"later": 1}, {"later": 1})
    with pytest.raises(InvalidInputError, match=r"spec\.later: Forbidden: unknown field"):
        read_job(*paths)


def test_a_bad_spec_exits_64_with_every_fault(tmp_path: Path) -> None:
    manifest = GRPOJob(metadata=Metadata(name="math")).to_manifest()
    manifest["spec"] = {"seed": -1, "numEpisodes": 0}
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(manifest))
    done = subprocess.run(
        [sys.executable, "-m", "grpo_trainer.cluster"],
        env={"GRPO_SPEC": str(path), "GRPO_RUN_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 64
    assert "spec.seed: Invalid value: -1" in done.stderr
    assert "spec.numEpisodes: Invalid value: 0" in done.stderr
