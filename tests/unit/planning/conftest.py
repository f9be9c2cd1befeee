"""The configuration of Qwen2.5-7B."""

import json
from pathlib import Path

import pytest

from grpo_trainer.planning import Architecture
from grpo_trainer.planning.architecture import architecture


@pytest.fixture(scope="session")
def qwen_7b() -> Architecture:
    config = json.loads((Path(__file__).parent / "qwen2.5-7b.json").read_text())
    return architecture(config, "Qwen/Qwen2.5-7B")
