"""The spec imports pydantic and the standard library only: the operator's image has no more."""

import subprocess
import sys

HEAVY = {"torch", "ray", "transformers", "numpy", "yaml", "aiohttp", "prometheus_client", "kopf"}


def test_the_spec_loads_nothing_but_pydantic():
    code = "import sys, grpo_trainer.spec; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert HEAVY.isdisjoint(done.stdout.split())
