"""Commands that watch: a table that stays up to date, and waiting for a phase."""

import asyncio
import sys
from collections.abc import Iterable
from contextlib import aclosing

from grpo_operator.model.decision import TERMINAL
from grpo_operator.model.observed import Job
from grpo_operator.model.resources import JOBS
from grpo_trainer.spec import Phase

from . import text
from .api import Api, Object, Target
from .errors import CommandError, Exit
from .jobs import cause, find_job, now, read_job
from .listing import LIVE, render

_CLEAR = "\x1b[H\x1b[J"
"""Cursor to the corner, nothing below."""


async def top(
    api: Api, name: str | None, *, everywhere: bool, once: bool, seconds: float | None
) -> None:
    """Show the table at each change, until the time is over or the one job is.

    In place where the terminal can, else one table after the other.
    """
    if name is not None:
        await find_job(api, name)
    target = Target(JOBS, None if everywhere else api.namespace, name or "")
    try:
        async with asyncio.timeout(seconds), aclosing(api.follow(target)) as changes:
            gap = ""
            async for found in changes:
                jobs = [read_job(item) for item in found]
                print(_CLEAR if sys.stdout.isatty() else gap, end="")
                print(*screen(jobs, everywhere=everywhere), sep="\n", flush=True)
                gap = "\n"
                if once or (name is not None and all(_over(job) for job in jobs)):
                    return
    except TimeoutError:
        return


def screen(jobs: Iterable[Job], *, everywhere: bool) -> list[str]:
    """What `top` shows of the jobs at this moment."""
    shown = list(jobs)
    if not shown:
        return ["no GRPOJobs"]
    return render(shown, LIVE, now(), namespaces=everywhere)


async def wait(api: Api, name: str, wanted: Phase, seconds: float) -> str:
    """Until the job is in a phase; returns what to say. Raises CommandError when it will not be."""
    job = await find_job(api, name)
    try:
        async with (
            asyncio.timeout(seconds),
            aclosing(api.follow(Target(JOBS, api.namespace, name))) as changes,
        ):
            async for found in changes:
                job = _same(job, found)
                if job.status.phase is wanted:
                    return described(job)
                if _over(job):
                    raise CommandError(f"{described(job)}; not {wanted}", Exit.ENDED_OTHERWISE)
    except TimeoutError as error:
        raise CommandError(
            f"not {wanted} within {text.age(seconds)}: {described(job)}", Exit.TIMED_OUT
        ) from error
    raise AssertionError("a watch does not end")


def _same(job: Job, found: list[Object]) -> Job:
    """The job as it is now; another of the same name is not it."""
    for item in found:
        if item["metadata"]["uid"] == job.uid:
            return read_job(item)
    raise CommandError(f"{job.name}: it was deleted", Exit.ENDED_OTHERWISE)


def described(job: Job) -> str:
    """Phase, step and reason in one line."""
    why = cause(job)
    reason = f" ({why.reason}{': ' if why.message else ''}{why.message})" if why else ""
    return f"{job.name}: {job.status.phase} at step {job.status.progress.step}{reason}"


def _over(job: Job) -> bool:
    return job.status.phase in TERMINAL
