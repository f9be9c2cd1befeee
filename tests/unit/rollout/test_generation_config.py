"""A model's generation configuration: absent, damaged, and on a Hub that does not answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_trainer.rollout.generation_config import read_generation_config

COMMIT = "0" * 40
READ = """
import json
from concurrent.futures import ThreadPoolExecutor
from transformers import GenerationConfig  # its first import is not for threads
from grpo_trainer.rollout.generation_config import read_generation_config
def read(name):
    try:
        return read_generation_config(name)
    except OSError:
        return "error"
names = ("acme/unknown", "acme/without")
with ThreadPoolExecutor() as pool:  # the library retries each for half a minute
    print(json.dumps(dict(zip(names, pool.map(read, names)))))
"""


def cached(home: Path, name: str) -> Path:
    """A model of the Hub in the cache, without a generation configuration."""
    model = home / "hub" / f"models--acme--{name}"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(COMMIT)
    (model / "snapshots" / COMMIT).mkdir(parents=True)
    (model / "snapshots" / COMMIT / "config.json").write_text("{}")
    return model


def read(home: Path, **environment: str) -> dict[str, object]:
    """What a process reads whose Hub refuses connections."""
    variables = {"HF_HOME": str(home), "HF_ENDPOINT": "http://127.0.0.1:9", **environment}
    command = [sys.executable, "-c", READ]
    output = subprocess.check_output(command, env={**os.environ, **variables}, timeout=300)
    found: dict[str, object] = json.loads(output)
    return found


def test_a_directory_without_a_file_has_none(tmp_path: Path) -> None:
    assert read_generation_config(str(tmp_path)) is None


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(OSError, match="not a valid JSON file"):
        read_generation_config(str(tmp_path))


def test_only_a_hub_that_answered_or_is_not_asked_has_none(tmp_path: Path) -> None:
    cached(tmp_path, "unknown")
    absent = cached(tmp_path, "without") / ".no_exist" / COMMIT
    absent.mkdir(parents=True)
    (absent / "generation_config.json").touch()
    assert read(tmp_path) == {"acme/unknown": "error", "acme/without": None}
    assert read(tmp_path, HF_HUB_OFFLINE="1") == {"acme/unknown": None, "acme/without": None}
