"""An environment that writes what it can read of the run."""

import os

from grpo_trainer.environments.sdk import Environment

print("RAY_AUTH_TOKEN", os.environ.get("RAY_AUTH_TOKEN"), flush=True)


class Revealing(Environment):
    """Nothing more."""
