"""The check of the vLLM environment: versions, missing and broken interpreters, deadlines."""

import sys
from pathlib import Path

import pytest

from grpo_trainer.environment import check_vllm_python, vllm_python
from grpo_trainer.errors import InvalidInputError


@pytest.fixture
def with_modules(tmp_path):
    """A function that makes an interpreter of the vLLM environment with some modules replaced."""

    def make(**sources):
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(source)
        script = tmp_path / "python"
        script.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {vllm_python()} "$@"\n')
        script.chmod(0o755)
        return script

    return make


def test_the_environment_of_this_checkout_serves():
    check_vllm_python(vllm_python())


def test_the_environment_variable_names_another(monkeypatch):
    monkeypatch.setenv("GRPO_VLLM_PYTHON", "/opt/vllm/bin/python")
    assert vllm_python() == Path("/opt/vllm/bin/python")


def test_another_version_of_ray_is_refused(with_modules):
    python = with_modules(ray="__version__ = '2.59.0'", vllm="")
    with pytest.raises(InvalidInputError, match=r"Ray 2\.59\.0 and must have .* Ray 2\.60\.0"):
        check_vllm_python(python)


def test_a_missing_interpreter_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"none/python: it cannot be run: No such file"):
        check_vllm_python(tmp_path / "none" / "python")


def test_an_environment_without_vllm_is_refused():
    with pytest.raises(InvalidInputError, match="No module named 'vllm"):
        check_vllm_python(Path(sys.executable))


def test_an_interpreter_that_hangs_is_given_up(with_modules):
    python = with_modules(ray="import threading\nthreading.Event().wait()")
    with pytest.raises(InvalidInputError, match=r"within 0\.5 s"):
        check_vllm_python(python, deadline_seconds=0.5)
