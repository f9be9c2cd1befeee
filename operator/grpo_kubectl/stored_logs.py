"""Logs of pods that are gone, from the copies on the job's volume."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

from grpo_operator.model.images import pool_of
from grpo_operator.model.naming import child_name, submission_id
from grpo_operator.model.observed import Job, Role

from .access import Session
from .checkpoints import VOLUME
from .errors import CommandError
from .shell import Shell
from .volume import reading

SECONDS = 300.0
"""Deadline for reading, with the start of the pod that reads."""
DRIVER_SCRIPT = r"""
cd "$1" 2>&- || { echo "the volume has no logs" >&2; exit 1; }
files=$(ls -1tr */job-driver-"$2".log* 2>&-)
[ -n "$files" ] || { echo "the volume has no log of attempt ${2##*-}" >&2; exit 1; }
cat $files | tail -n "$3"
"""
"""The copies of one attempt's output: a rotated one is older."""
PODS_SCRIPT = r"""
cd "$1" 2>&- || { echo "the volume has no logs" >&2; exit 1; }
for pod in $(ls -1t | head -n "$2"); do
    for file in $(ls -1tr "$pod"); do cat "$pod/$file"; done | tail -n "$3" | sed "s|^|[$pod] |"
done
"""
"""The output of the newest pods."""


async def print_stored(
    session: Session, job: Job, role: Role, *, attempt: int | None, tail: int, image: str | None
) -> None:
    """Print the copies of the driver's output (with an attempt), or of all pods of a role.

    Raises CommandError or ApiError.
    """
    print(f"{job.name}: the pods are gone; reading the volume", file=sys.stderr)
    try:
        async with asyncio.timeout(SECONDS), reading(session, job, image, SECONDS) as shell:
            chunks = _output(shell, job, role, attempt=attempt, tail=tail)
            async with aclosing(chunks):
                async for chunk in chunks:
                    sys.stdout.write(chunk.decode(errors="replace"))
            sys.stdout.flush()
    except TimeoutError as error:
        raise CommandError(f"{job.name}: reading the volume timed out") from error


def _output(
    shell: Shell, job: Job, role: Role, *, attempt: int | None, tail: int
) -> AsyncGenerator[bytes, None]:
    assert job.spec is not None
    directory = f"{VOLUME}/runs/{child_name(job.name, job.uid)}/logs/pods/{role}"
    if attempt is not None:
        run = submission_id(job.uid, attempt)
        return shell(("sh", "-c", DRIVER_SCRIPT, "sh", directory, run, str(tail)))
    count = getattr(pool_of(job.spec, role), "replicas", 1)
    return shell(("sh", "-c", PODS_SCRIPT, "sh", directory, str(count), str(tail)))
