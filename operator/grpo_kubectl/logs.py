"""Logs of a job's driver, actors and pods."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum

from grpo_operator.clients.errors import ApiError
from grpo_operator.model.decision import TERMINAL
from grpo_operator.model.naming import submission_id
from grpo_operator.model.observed import Job, Pod, Role
from grpo_operator.model.resources import JOBS, PODS
from grpo_trainer.spec import Phase

from .access import Session
from .errors import CommandError, explain
from .follow import follow as followed
from .jobs import find_job, pods_of, read_job
from .live import described
from .shell import RAY_CONTAINER, Container
from .stored_logs import print_stored

RAY_LOGS = "/tmp/ray/session_latest/logs"
DRIVER_SCRIPT = r"""
cd "$1" && [ -f "job-driver-$2.log" ] || { echo "no log of attempt ${2##*-}" >&2; exit 1; }
exec tail -n "$3" $4 "job-driver-$2.log"
"""
"""Ray writes the output of a submission to a file on the head."""
ACTORS_SCRIPT = r"""
cd "$1" || exit 1
files=$(ls worker-*.out worker-*.err 2>&-)
[ -n "$files" ] || { echo "no output of actors on this pod" >&2; exit 1; }
exec tail -q -n "$2" $3 $files
"""
"""Ray writes the output of actors to files on their own node."""
PRINT_SECONDS = 120.0
"""Time limit for printing without following."""
END_SECONDS = 30.0
"""A followed log ends with its pod, seconds before the operator reports why."""
Stream = tuple[str, AsyncGenerator[bytes, None]]
"""A prefix for each line, and the output of one pod."""


class LogRole(StrEnum):
    DRIVER = "driver"
    PRODUCERS = "producers"
    CONSUMERS = "consumers"
    HEAD = "head"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What is printed."""

    role: LogRole
    attempt: int | None = None
    """None: the last one."""
    follow: bool = False
    tail: int = 200
    image: str | None = None
    """Of the pod that reads the volume, once the job's pods are gone."""


async def logs(session: Session, name: str, options: LogOptions) -> None:
    """Print the logs of a role; follow until interrupted, or until the attempt ends.

    Without pods, print the copies on the volume.
    """
    job = await find_job(session, name)
    role, attempt, follow, tail = options.role, options.attempt, options.follow, options.tail
    pods = _printing(await pods_of(session, job), role)
    if not pods:
        await _print_stored(session, job, options)
        return
    streams = _streams(session, job, pods, role, attempt=attempt, follow=follow, tail=tail)
    if follow:
        await _follow(session, job, {pod.name for pod in pods}, streams)
        return
    try:
        async with asyncio.timeout(PRINT_SECONDS):
            await _print_all(streams, session.kube.server)
    except TimeoutError as error:
        message = f"{name}: reading the log timed out after {PRINT_SECONDS:.0f} s"
        raise CommandError(message) from error


async def _follow(session: Session, job: Job, names: set[str], streams: list[Stream]) -> None:
    """Print until the attempt ends. Raises CommandError or ApiError if a stream fails before."""
    printing = asyncio.create_task(_print_all(streams, session.kube.server))
    ending = asyncio.create_task(_until_ended(session, job))
    try:
        await asyncio.wait({printing, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done() and not await _remaining(session, job, names):
            await asyncio.wait({ending}, timeout=END_SECONDS)
        first = ending if ending.done() else printing
        first.result()
    finally:
        printing.cancel()
        ending.cancel()
        await asyncio.gather(printing, ending, return_exceptions=True)


async def _remaining(session: Session, job: Job, names: set[str]) -> bool:
    """Whether any of the pods remains: its stream should not have ended then."""
    return any(pod.name in names and not pod.deleting for pod in await pods_of(session, job))


def _printing(pods: list[Pod], role: LogRole) -> list[Pod]:
    """The pods with the logs of the role."""
    return [pod for pod in pods if pod.role is _pool(role)]


def _pool(role: LogRole) -> Role:
    return Role.HEAD if role is LogRole.DRIVER else Role(role)


async def _print_stored(session: Session, job: Job, options: LogOptions) -> None:
    """Raises CommandError if no attempt has ever begun."""
    role, pool = options.role, _pool(options.role)
    if job.spec is None or job.status.head_pod_uid is None:
        raise CommandError(
            f"{job.name}: the job has no {pool} pod (phase {job.status.phase}); "
            f"see kubectl grpo status {job.name}"
        )
    attempt = None
    if role is LogRole.DRIVER:
        attempt = options.attempt or max(1, job.status.attempt)
    await print_stored(session, job, pool, attempt=attempt, tail=options.tail, image=options.image)


def _streams(
    session: Session,
    job: Job,
    pods: list[Pod],
    role: LogRole,
    *,
    attempt: int | None,
    follow: bool,
    tail: int,
) -> list[Stream]:
    """The log of each of the pods."""
    option = "-F" if follow else ""
    streams = []
    for pod in pods:
        container = Container(session.kube, job.namespace, pod.name, RAY_CONTAINER)
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
            chunks = _container_log(session, pod, job.namespace, query)
        streams.append((f"[{pod.name}] " if len(pods) > 1 else "", chunks))
    return streams


async def _container_log(
    session: Session, pod: Pod, namespace: str, query: Mapping[str, str]
) -> AsyncGenerator[bytes, None]:
    stream = session.kube.stream("get", PODS, namespace, pod.name, "log", query=query)
    async with stream as content:
        async for chunk in content.iter_any():
            yield chunk


async def _print_all(streams: list[Stream], server: str) -> None:
    """Raises CommandError or ApiError when none of them can be read."""
    faults = await asyncio.gather(*(_print(*stream, server) for stream in streams))
    known = [fault for fault in faults if fault is not None]
    if len(known) == len(streams):
        raise known[0]


async def _print(
    prefix: str, chunks: AsyncGenerator[bytes, None], server: str
) -> CommandError | ApiError | None:
    """One of several that cannot be read is reported at once and does not stop the others."""
    try:
        async with aclosing(chunks):
            async for line in whole_lines(chunks):
                print(f"{prefix}{line}", flush=True)
    except (CommandError, ApiError) as error:
        if prefix:
            print(f"{prefix}{explain(error, server)}", file=sys.stderr)
        return error
    return None


async def whole_lines(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[str, None]:
    """The lines of a stream whose chunks end anywhere."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


async def _until_ended(session: Session, job: Job) -> None:
    """Wait until the operator has recorded the attempt's end, some seconds after it."""
    async with aclosing(followed(session.kube, JOBS, job.namespace, job.name)) as changes:
        async for found in changes:
            now = [read_job(item) for item in found if item["metadata"]["uid"] == job.uid]
            if not now or _has_ended(job, now[0]):
                break
    print(described(now[0]) if now else f"{job.name}: the job was deleted", file=sys.stderr)


def _has_ended(before: Job, after: Job) -> bool:
    """Whether the attempt of `before` has ended."""
    stopped = after.status.phase in (*TERMINAL, Phase.SUSPENDED)
    return stopped or after.status.attempt != before.status.attempt
