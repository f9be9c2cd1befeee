"""What the driver, and an environment with another engine, can import of the rollout package."""

import subprocess
import sys

CHECK = """
import sys
import grpo_trainer.rollout.engine, grpo_trainer.rollout.producer
heavy = {"torch", "transformers", "ray", "colossalai"} & sys.modules.keys()
assert not heavy, heavy
"""


def test_the_protocol_and_the_actor_import_no_inference_library():
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
