"""What both environments import to understand each other stands on numpy and pydantic alone."""

import subprocess
import sys

import pytest

WIRE = ["messages", "weights", "errors", "events", "spec", "rollout.engine", "rollout.producer"]
HEAVY = ["torch", "transformers", "ray", "vllm", "colossalai"]


@pytest.mark.parametrize("module", WIRE)
def test_a_module_of_the_wire_imports_no_heavy_library(module):
    code = f"import sys, grpo_trainer.{module}; print(*({HEAVY} & sys.modules.keys()))"
    code = code.replace(f"{HEAVY}", f"set({HEAVY})")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []
