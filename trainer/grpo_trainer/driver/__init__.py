"""The driver: owns every actor of a run, from the spec to the summary."""

import sys

from grpo_trainer.errors import RunFailedError
from grpo_trainer.options import RunOptions
from grpo_trainer.spec import ExitCode, GRPOJob

from .local_environment import settle_environment
from .signals import StopSignals


def run(job: GRPOJob, options: RunOptions) -> int:
    """Train; returns an exit code.

    | 0 | the data or the steps are used up |
    | 1 | an outage or a fault, which was printed; a retry may succeed |
    | 75 | a stop was requested; a checkpoint was written if there was anything to save |

    A run directory with a checkpoint is resumed. `summary.json` is written at every end of a run
    that has started.

    Raises:
        InvalidInputError: spec, data, model or reward cannot work.
    """
    signals = StopSignals()
    signals.install()
    settle_environment(own_ray=options.ray_address is None)
    from .run import run as run_job  # seconds of imports, which read the environment

    try:
        return run_job(job, options, signals)
    except RunFailedError as error:
        print(error, file=sys.stderr)
        return ExitCode.FAILURE
