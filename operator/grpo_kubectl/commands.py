"""The commands: each takes the API server and the parsed command line."""

import asyncio
import json
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from grpo_operator.model.observed import Job
from grpo_operator.model.resources import JOBS
from grpo_trainer.spec import Phase

from . import changes, checkpoints, copying, listing, live, status, text, volume
from .api import Api, Target
from .checkpoints import StoredCheckpoint
from .errors import CommandError, Exit, ForbiddenError
from .jobs import events_of, find_job, now, pods_of, read_job
from .logs import LogRole, logs
from .shell import Shell

Command = Callable[[Api, Namespace], Awaitable[None]]


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        print(line)


async def list_jobs(api: Api, given: Namespace) -> None:
    found = await api.list(Target(JOBS, None if given.all_namespaces else api.namespace))
    if given.output == "json":
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": found["items"]}, indent=2))
        return
    jobs = [read_job(item) for item in found["items"]]
    columns = listing.WIDE if given.output == "wide" else listing.NARROW
    if jobs:
        _say(listing.render(jobs, columns, now(), namespaces=given.all_namespaces))
    else:
        _say([f"no GRPOJobs in {'any' if given.all_namespaces else 'the'} namespace"])


async def show_status(api: Api, given: Namespace) -> None:
    job = await find_job(api, given.name)
    pods = await pods_of(api, job)
    try:
        events = await events_of(api, job)
    except ForbiddenError:  # they are gone after an hour anyway
        events = []
    _say(status.render(job, pods, events, now()))


async def top(api: Api, given: Namespace) -> None:
    await live.top(
        api,
        given.name,
        everywhere=given.all_namespaces,
        once=given.once,
        seconds=given.timeout,
    )


async def show_logs(api: Api, given: Namespace) -> None:
    await logs(
        api,
        given.name,
        LogRole(given.role),
        attempt=given.attempt,
        follow=given.follow,
        tail=given.tail,
    )


async def suspend(api: Api, given: Namespace) -> None:
    _say([await changes.suspend(api, given.name, wanted=True)])


async def resume(api: Api, given: Namespace) -> None:
    _say([await changes.suspend(api, given.name, wanted=False)])


async def scale(api: Api, given: Namespace) -> None:
    _say([await changes.scale(api, given.name, given.producers)])


async def wait(api: Api, given: Namespace) -> None:
    _say([await live.wait(api, given.name, Phase(given.phase), given.timeout)])


async def list_checkpoints(api: Api, given: Namespace) -> None:
    async with _checkpoints(api, given) as (_, job, found):
        if not found:
            raise CommandError(f"{job.name}: no checkpoint lies in {checkpoints.directory(job)}")
        _say(checkpoints.render(found, now()))


async def copy_checkpoint(api: Api, given: Namespace) -> None:
    target = Path(given.destination)
    copying.refuse_existing(target)
    async with _checkpoints(api, given) as (shell, job, found):
        checkpoint = checkpoints.chosen(found, given.step)
        copied = await copying.copy(shell, checkpoints.directory(job), checkpoint, target)
    _say([f"{checkpoint.name} of {job.name}, {text.size(copied)}, is in {target}"])


@asynccontextmanager
async def _checkpoints(
    api: Api, given: Namespace
) -> AsyncIterator[tuple[Shell, Job, tuple[StoredCheckpoint, ...]]]:
    """A shell at the job's volume, and what lies there."""
    job = await find_job(api, given.name)
    if job.spec is None:
        raise CommandError(f"{job.name}: its spec is not legal, so it has no volume: {job.faults}")
    try:
        async with (
            asyncio.timeout(given.timeout),
            volume.reading(api, job, given.image, given.timeout) as shell,
        ):
            yield shell, job, await checkpoints.stored(shell, checkpoints.directory(job))
    except TimeoutError as error:
        message = f"{job.name}: not done within {text.age(given.timeout)}; nothing is left of it"
        raise CommandError(message, Exit.TIMED_OUT) from error
