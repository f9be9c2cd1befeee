"""The files beside the weights of a checkpoint, of a model directory and of a Hub id."""

import os
import shutil
import subprocess
import sys

import pytest
from transformers import GenerationConfig

from unit.rollout.tiny_models import save_directory, tiny_model

WRITE = """
import sys
from pathlib import Path
from types import SimpleNamespace
from transformers import AutoTokenizer
from grpo_trainer.driver.model_files import write_model_files
from grpo_trainer.driver.prepare import load_generation_config
from grpo_trainer.spec import GRPOJob
source, target = sys.argv[1:]
prepared = SimpleNamespace(
    model_path=source,
    tokenizer=AutoTokenizer.from_pretrained(source),
    generation_config=load_generation_config(source),
)
write_model_files(Path(target), prepared, GRPOJob().spec)
"""


@pytest.fixture
def directory(tmp_path):
    generation = GenerationConfig(eos_token_id=[1, 3])
    return save_directory(tiny_model(), tmp_path / "model", generation_config=generation)


def written(tmp_path, source, name):
    """The files of a checkpoint, by a process that is offline and has its own cache."""
    target = tmp_path / name
    target.mkdir()
    home = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", WRITE, source, str(target)]
    subprocess.run(command, env={**os.environ, **home}, check=True, timeout=120)
    return {file.name: file.read_text() for file in target.iterdir()}


def test_a_model_of_the_hub_leaves_the_files_that_its_directory_leaves(tmp_path, directory):
    cached = tmp_path / "home" / "hub" / "models--acme--x"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("0" * 40)
    shutil.copytree(directory, cached / "snapshots" / ("0" * 40))
    of_hub = written(tmp_path, "acme/x", "of-hub")
    of_directory = written(tmp_path, directory, "of-directory")
    assert GenerationConfig.from_pretrained(tmp_path / "of-hub").eos_token_id == [1, 3]
    assert of_hub.keys() == of_directory.keys()
