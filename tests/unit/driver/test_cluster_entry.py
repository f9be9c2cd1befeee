"""The driver's entry in a cluster: what it reads from the environment and the mounted spec."""

import json
import subprocess
import sys
from pathlib import Path

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
