"""The stacks of the driver and of all its actors in one file, to debug a run that hangs."""

import asyncio
import io
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray.exceptions import RayError

from grpo_trainer.stacks import thread_stacks

ANSWER_SECONDS = 5.0
"""Deadline of an actor; a missed deadline is written into the file."""


async def write_stacks(actors: Mapping[str, Any], logs: Path) -> Path:
    """Collect the stacks of all actors concurrently and write them with the driver's own."""
    names = list(actors)
    answers = await asyncio.gather(*(_ask(actors[name]) for name in names))
    parts = {"driver": f"{thread_stacks()}\n{_tasks()}", **dict(zip(names, answers, strict=True))}
    path = logs / f"stacks-{time.strftime('%Y%m%d-%H%M%S')}.txt"
    path.write_text("\n\n".join(f"=== {name}\n{text}" for name, text in parts.items()))
    return path


async def _ask(actor: Any) -> str:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            text: str = await actor.stacks.remote()
            return text
    except (RayError, TimeoutError) as error:
        return f"no answer in {ANSWER_SECONDS:g} s: {error!r}"


def _tasks() -> str:
    """The stacks of the driver's coroutines."""
    out = io.StringIO()
    for task in asyncio.all_tasks():
        task.print_stack(file=out)
    return out.getvalue()
