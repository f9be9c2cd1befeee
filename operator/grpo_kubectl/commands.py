"""The commands: each takes a session and the parsed command line."""

import asyncio
import json
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from grpo_operator.clients.errors import ForbiddenError
from grpo_operator.model.observed import Job
from grpo_operator.model.resources import JOBS
from grpo_trainer.spec import Phase

from . import changes, checkpoints, copying, listing, live, status, text, volume
from .access import Session
from .checkpoints import StoredCheckpoint
from .errors import CommandError, Exit
from .jobs import events_of, find_job, now, pods_of, read_job
from .logs import LogOptions, LogRole, logs
from .shell import Shell

Command = Callable[[Session, Namespace], Awaitable[None]]


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        print(line)


async def list_jobs(session: Session, given: Namespace) -> None:
    found = await session.kube.list(JOBS, None if given.all_namespaces else session.namespace)
    whole = {"apiVersion": "v1", "kind": "List", "items": found["items"]}
    if given.output == "json":
        print(json.dumps(whole, indent=2))
        return
    if given.output == "yaml":
        print(yaml.safe_dump(whole, sort_keys=False), end="")
        return
    jobs = [read_job(item) for item in found["items"]]
    columns = listing.WIDE if given.output == "wide" else listing.NARROW
    if jobs:
        _print(listing.render(jobs, columns, now(), namespaces=given.all_namespaces))
    elif given.all_namespaces:
        _print(["no GRPOJobs in any namespace"])
    else:
        _print([f"no GRPOJobs in namespace {session.namespace}"])


async def show_status(session: Session, given: Namespace) -> None:
    job = await find_job(session, given.name)
    pods = await pods_of(session, job)
    try:
        events = await events_of(session, job)
    except ForbiddenError:  # they expire after an hour anyway
        events = []
    _print(status.render(job, pods, events, now()))


async def top(session: Session, given: Namespace) -> None:
    await live.top(
        session,
        given.name,
        everywhere=given.all_namespaces,
        once=given.once,
        seconds=given.timeout,
    )


async def show_logs(session: Session, given: Namespace) -> None:
    options = LogOptions(
        role=LogRole(given.role),
        attempt=given.attempt,
        follow=given.follow,
        tail=given.tail,
        image=given.image,
    )
    await logs(session, given.name, options)


async def suspend(session: Session, given: Namespace) -> None:
    _print([await changes.suspend(session, given.name, suspended=True)])


async def resume(session: Session, given: Namespace) -> None:
    _print([await changes.suspend(session, given.name, suspended=False)])


async def scale(session: Session, given: Namespace) -> None:
    _print([await changes.scale(session, given.name, given.producers)])


async def wait(session: Session, given: Namespace) -> None:
    _print([await live.wait(session, given.name, Phase(given.phase), given.timeout)])


async def list_checkpoints(session: Session, given: Namespace) -> None:
    async with _checkpoints(session, given) as (_, job, found):
        if not found:
            raise CommandError(f"{job.name}: no checkpoints in {checkpoints.directory(job)}")
        _print(checkpoints.render(found, now()))


async def copy_checkpoint(session: Session, given: Namespace) -> None:
    target = Path(given.destination)
    copying.refuse_existing(target)
    async with _checkpoints(session, given) as (shell, job, found):
        checkpoint = checkpoints.chosen(found, given.step)
        copied = await copying.copy(shell, checkpoints.directory(job), checkpoint, target)
    _print([f"copied {checkpoint.name} of {job.name} ({text.size(copied)}) to {target}"])


@asynccontextmanager
async def _checkpoints(
    session: Session, given: Namespace
) -> AsyncIterator[tuple[Shell, Job, tuple[StoredCheckpoint, ...]]]:
    """A shell with the job's volume, and the checkpoints on it."""
    job = await find_job(session, given.name)
    if job.spec is None:
        raise CommandError(f"{job.name}: invalid spec, so the job has no volume: {job.faults}")
    try:
        async with (
            asyncio.timeout(given.timeout),
            volume.reading(session, job, given.image, given.timeout) as shell,
        ):
            yield shell, job, await checkpoints.stored(shell, checkpoints.directory(job))
    except TimeoutError as error:
        message = f"{job.name}: timed out after {text.age(given.timeout)}; nothing was written"
        raise CommandError(message, Exit.TIMED_OUT) from error
