"""The driver's entry in a cluster: `python -m grpo_trainer.cluster`, without arguments.

The spec comes from a mounted file and everything else from the environment, so that no user input
passes through a shell.
"""

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from grpo_trainer.errors import InvalidInputError, invalid, required
from grpo_trainer.options import RunOptions
from grpo_trainer.spec import ExitCode, GRPOJob, parse_manifest

DEFAULT_SPEC = "/etc/grpo/spec.json"
LINGER_SECONDS = 10.0
"""Two polling intervals of the operator, so that it reads the last step."""


@dataclass(frozen=True, slots=True)
class ClusterEnvironment:
    """The environment variables that the operator sets for a driver."""

    spec_file: Path
    """`GRPO_SPEC`: the GRPOJob as JSON."""
    resolved_spec_file: Path | None
    """`GRPO_RESOLVED_SPEC`: the same with all defaults."""
    run_dir: Path
    """`GRPO_RUN_DIR`: on the volume."""
    attempt: int
    """`GRPO_ATTEMPT`."""
    address: str | None
    """`GRPO_POD_IP`: where other pods of the job reach the driver."""
    token: str | None
    """`RAY_AUTH_TOKEN`: also the token of `/drain`."""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "ClusterEnvironment":
        """Raises InvalidInputError for a missing variable or one that is not a number."""
        if "GRPO_RUN_DIR" not in environment:
            raise InvalidInputError(required("GRPO_RUN_DIR", "a directory on the volume"))
        attempt = environment.get("GRPO_ATTEMPT", "0")
        resolved = environment.get("GRPO_RESOLVED_SPEC")
        if not attempt.isdecimal():
            raise InvalidInputError(invalid("GRPO_ATTEMPT", attempt, "must be a number"))
        return cls(
            spec_file=Path(environment.get("GRPO_SPEC", DEFAULT_SPEC)),
            resolved_spec_file=Path(resolved) if resolved else None,
            run_dir=Path(environment["GRPO_RUN_DIR"]),
            attempt=int(attempt),
            address=environment.get("GRPO_POD_IP"),
            token=environment.get("RAY_AUTH_TOKEN"),
        )


def read_job(path: Path, resolved: Path | None = None) -> GRPOJob:
    """The job of the mounted file, with the defaults of the operator's version if it gives them.

    Every field that the user has set must be known here; a default of a later version need not be.
    Raises InvalidInputError.
    """
    import yaml

    try:
        job = parse_manifest(yaml.safe_load(path.read_text()))
        if resolved is None:
            return job
        return GRPOJob.model_validate_json(resolved.read_text(), strict=True, extra="ignore")
    except (OSError, yaml.YAMLError) as error:
        raise InvalidInputError(f"{path}: {error}") from error
    except ValueError as error:
        raise InvalidInputError(str(error).splitlines()) from error


def main() -> int:
    """Run the driver in the Ray cluster of this process; returns its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        environment = ClusterEnvironment.read(os.environ)
        job = read_job(environment.spec_file, environment.resolved_spec_file)
        options = RunOptions(
            run_dir=environment.run_dir,
            host="0.0.0.0",
            advertised_host=environment.address,
            ray_address="auto",
            token=environment.token,
            linger_seconds=LINGER_SECONDS,
            attempt=environment.attempt,
        )
        from grpo_trainer.driver import run

        return run(job, options)
    except InvalidInputError as error:
        print(error, file=sys.stderr)
        return ExitCode.BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
