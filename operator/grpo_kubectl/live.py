"""Commands that follow jobs: a table that updates in place, and waiting for a phase."""

import asyncio
import sys
from collections.abc import Iterable
from contextlib import aclosing

from grpo_operator.clients.kube import Object
from grpo_operator.model.decision import TERMINAL
from grpo_operator.model.observed import Job
from grpo_operator.model.resources import JOBS
from grpo_trainer.spec import Phase

from . import text
from .access import Session
from .errors import CommandError, Exit
from .follow import follow
from .jobs import explaining_condition, find_job, now, read_job
from .listing import LIVE, render

_CLEAR = "\x1b[H\x1b[J"
"""Cursor to the top left, screen cleared below it."""


async def top(
    session: Session, name: str | None, *, everywhere: bool, once: bool, seconds: float | None
) -> None:
    """Print the table after each change, until `seconds` have passed or the named job has ended.

    On a terminal it is updated in place, elsewhere the tables follow one another.
    """
    if name is not None:
        await find_job(session, name)
    namespace = None if everywhere else session.namespace
    changes = follow(session.kube, JOBS, namespace, name or "")
    try:
        async with asyncio.timeout(seconds), aclosing(changes):
            gap = ""
            async for found in changes:
                jobs = [read_job(item) for item in found]
                print(_CLEAR if sys.stdout.isatty() else gap, end="")
                print(*screen(jobs, everywhere=everywhere), sep="\n", flush=True)
                gap = "\n"
                if once or (name is not None and all(_ended(job) for job in jobs)):
                    return
    except TimeoutError:
        return


def screen(jobs: Iterable[Job], *, everywhere: bool) -> list[str]:
    """The lines of `top` for these jobs."""
    shown = list(jobs)
    if not shown:
        return ["no GRPOJobs"]
    return render(shown, LIVE, now(), namespaces=everywhere)


async def wait(session: Session, name: str, phase: Phase, seconds: float) -> str:
    """Wait until the job is in a phase; returns the line to print.

    Raises CommandError when the job ends in another phase, is deleted, or `seconds` have passed.
    """
    job = await find_job(session, name)
    changes = follow(session.kube, JOBS, session.namespace, name)
    try:
        async with asyncio.timeout(seconds), aclosing(changes):
            async for found in changes:
                job = _same(job, found)
                if job.status.phase is phase:
                    return described(job)
                if _ended(job):
                    raise CommandError(f"{described(job)}; not {phase}", Exit.ENDED_OTHERWISE)
    except TimeoutError as error:
        raise CommandError(
            f"not {phase} within {text.age(seconds)}: {described(job)}", Exit.TIMED_OUT
        ) from error
    raise AssertionError("a watch does not end")


def _same(job: Job, found: list[Object]) -> Job:
    """The current state of the job; one of the same name with another UID is a different job."""
    for item in found:
        if item["metadata"]["uid"] == job.uid:
            return read_job(item)
    raise CommandError(f"{job.name}: the job was deleted", Exit.ENDED_OTHERWISE)


def described(job: Job) -> str:
    """Phase, step and reason in one line."""
    why = explaining_condition(job)
    reason = f" ({why.reason}{': ' if why.message else ''}{why.message})" if why else ""
    return f"{job.name}: {job.status.phase} at step {job.status.progress.step}{reason}"


def _ended(job: Job) -> bool:
    return job.status.phase in TERMINAL
