"""What a job's driver, actors and pods print."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import StrEnum

from grpo_operator.model.decision import TERMINAL
from grpo_operator.model.naming import submission_id
from grpo_operator.model.observed import Job, Pod
from grpo_operator.model.resources import JOBS, PODS
from grpo_trainer.spec import Phase

from .api import Api, Target
from .errors import CommandError
from .jobs import find_job, pods_of, read_job
from .live import described
from .shell import RAY_CONTAINER, Container

RAY_LOGS = "/tmp/ray/session_latest/logs"
DRIVER_SCRIPT = r"""
cd "$1" && [ -f "job-driver-$2.log" ] || { echo "no log of attempt ${2##*-} is here" >&2; exit 1; }
exec tail -n "$3" $4 "job-driver-$2.log"
"""
"""Ray keeps a submission's output in a file on the head."""
ACTORS_SCRIPT = r"""
cd "$1" || exit 1
files=$(ls worker-*.out worker-*.err 2>&-)
[ -n "$files" ] || { echo "no actor has printed anything here" >&2; exit 1; }
exec tail -q -n "$2" $3 $files
"""
"""And that of actors in files on their own node."""
PRINT_SECONDS = 120.0
"""Time to print what there is, without following."""
OVER_SECONDS = 30.0
"""What is followed ends with its pod, seconds before the operator says why."""
Stream = tuple[str, AsyncGenerator[bytes, None]]
"""A prefix, and what comes of one pod."""


class LogRole(StrEnum):
    DRIVER = "driver"
    PRODUCERS = "producers"
    CONSUMERS = "consumers"
    HEAD = "head"


async def logs(
    api: Api, name: str, role: LogRole, *, attempt: int | None, follow: bool, tail: int
) -> None:
    """Print them; follow until interrupted, or until the attempt is over."""
    job = await find_job(api, name)
    pods = _printing(job, await pods_of(api, job), role)
    streams = _streams(api, job, pods, role, attempt=attempt, follow=follow, tail=tail)
    if follow:
        await _follow(api, job, {pod.name for pod in pods}, streams)
        return
    try:
        async with asyncio.timeout(PRINT_SECONDS):
            await _print_all(streams)
    except TimeoutError as error:
        message = f"{name}: the log did not end within {PRINT_SECONDS:.0f} s"
        raise CommandError(message) from error


async def _follow(api: Api, job: Job, names: set[str], streams: list[Stream]) -> None:
    """Until the attempt is over. Raises CommandError when the streams end, and it is not."""
    printing = asyncio.create_task(_print_all(streams))
    over = asyncio.create_task(_until_over(api, job))
    try:
        await asyncio.wait({printing, over}, return_when=asyncio.FIRST_COMPLETED)
        if not over.done() and not await _stay(api, job, names):
            await asyncio.wait({over}, timeout=OVER_SECONDS)
        ended = over if over.done() else printing
        ended.result()
    finally:
        printing.cancel()
        over.cancel()
        await asyncio.gather(printing, over, return_exceptions=True)


async def _stay(api: Api, job: Job, names: set[str]) -> bool:
    """Whether any of the pods is there to stay: its stream then has no reason to end."""
    return any(pod.name in names and not pod.deleting for pod in await pods_of(api, job))


def _printing(job: Job, pods: list[Pod], role: LogRole) -> list[Pod]:
    """The pods that print what the role does. Raises CommandError when there is none."""
    pool = LogRole.HEAD if role is LogRole.DRIVER else role
    found = [pod for pod in pods if str(pod.role) == str(pool)]
    if not found:
        raise CommandError(
            f"{job.name}: no pod of its {pool} is there (phase {job.status.phase}), and the log "
            f"went with it; see kubectl grpo status {job.name}, and logs/ in the run directory"
        )
    return found


def _streams(
    api: Api,
    job: Job,
    pods: list[Pod],
    role: LogRole,
    *,
    attempt: int | None,
    follow: bool,
    tail: int,
) -> list[Stream]:
    """What each of the pods prints."""
    option = "-F" if follow else ""
    streams = []
    for pod in pods:
        container = Container(api, job.namespace, pod.name, RAY_CONTAINER)
        if role is LogRole.DRIVER:
            run = submission_id(job.uid, attempt or max(1, job.status.attempt))
            chunks = container(("sh", "-c", DRIVER_SCRIPT, "sh", RAY_LOGS, run, str(tail), option))
        elif role is not LogRole.HEAD and pod.ready:
            chunks = container(("sh", "-c", ACTORS_SCRIPT, "sh", RAY_LOGS, str(tail), option))
        else:
            query = {
                "container": RAY_CONTAINER,
                "tailLines": str(tail),
                "follow": str(follow).lower(),
            }
            chunks = api.log(Target(PODS, job.namespace, pod.name, "log"), query)
        streams.append((f"[{pod.name}] " if len(pods) > 1 else "", chunks))
    return streams


async def _print_all(streams: list[Stream]) -> None:
    """Raises CommandError when none of them can be read."""
    faults = await asyncio.gather(*(_print(*stream) for stream in streams))
    known = [fault for fault in faults if fault is not None]
    if len(known) == len(streams):
        raise known[0]


async def _print(prefix: str, chunks: AsyncGenerator[bytes, None]) -> CommandError | None:
    """One of several that cannot be read is told at once, and does not keep the others."""
    try:
        async with aclosing(chunks):
            async for line in whole_lines(chunks):
                print(f"{prefix}{line}", flush=True)
    except CommandError as error:
        if prefix:
            print(f"{prefix}{error}", file=sys.stderr)
        return error
    return None


async def whole_lines(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[str, None]:
    """Lines of a stream that may be cut anywhere."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


async def _until_over(api: Api, job: Job) -> None:
    """Until the attempt has ended and the operator has seen it, which is some seconds later."""
    async with aclosing(api.follow(Target(JOBS, job.namespace, job.name))) as changes:
        async for found in changes:
            now = [read_job(item) for item in found if item["metadata"]["uid"] == job.uid]
            if not now or _is_over(job, now[0]):
                break
    told = described(now[0]) if now else f"{job.name}: it was deleted"
    print(told, file=sys.stderr)


def _is_over(before: Job, after: Job) -> bool:
    """Whether the attempt of `before` has ended."""
    rests = after.status.phase in (*TERMINAL, Phase.SUSPENDED)
    return rests or after.status.attempt != before.status.attempt
