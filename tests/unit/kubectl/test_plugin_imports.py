"""The plugin imports no heavy libraries, so that it starts fast."""

import subprocess
import sys

HEAVY = ("torch", "ray", "transformers", "numpy", "kopf", "prometheus_client", "rich")


def test_the_plugin_loads_nothing_heavy():
    code = f"import sys, grpo_kubectl.cli; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
