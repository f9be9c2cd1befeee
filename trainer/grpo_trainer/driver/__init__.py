"""The driver: owns every actor of a run and leads it from the spec to the summary."""

import os
import secrets

from grpo_trainer.options import RunOptions
from grpo_trainer.spec import GRPOJob


def run(job: GRPOJob, options: RunOptions) -> int:
    """Train; returns 0, or 75 when the run was asked to stop and left a checkpoint.

    A run directory with a checkpoint is resumed. `summary.json` is written at every end.

    Raises:
        InvalidInputError: spec, data or model are unfit.
    """
    _settle_environment(own=options.ray_address is None)
    from .run import run as run_settled

    return run_settled(job, options)


def _settle_environment(*, own: bool) -> None:
    """Libraries read these when they are imported, and all processes of a run must agree."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    if own:
        # A secret of this run: without one Ray writes a lasting one to the home directory.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(16))
    # Workers at nice 15, Ray's default, starve on a machine that does anything else.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Said once here, or the tokenizer warns about every process that is started.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
