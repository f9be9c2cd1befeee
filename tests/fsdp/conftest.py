"""The interpreter of the second environment, and a model that one process of ColossalAI trained."""

from dataclasses import replace
from pathlib import Path

import pytest

from grpo_trainer.environment import vllm_python
from support.layouts import job, options, run
from support.models import save_random_model


@pytest.fixture(scope="package")
def python() -> Path:
    return vllm_python()


@pytest.fixture(scope="package")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="package")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("reference"), seed=1)


@pytest.fixture(scope="package")
def plain(model: Path, reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process of ColossalAI in fp32: the truth that every layout has to meet."""
    tmp = tmp_path_factory.mktemp("plain")
    kl = replace(options(model).algorithm, kl_coefficient=0.1)
    whole = options(model, algorithm=kl, reference_path=str(reference))
    run([job(tmp, "whole", whole), job(tmp, "without reference", options(model))], world=1)
    return tmp
