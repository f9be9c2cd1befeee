"""Calls to Ray actors as one call with a deadline."""

import asyncio
from collections.abc import Sequence
from typing import Any

from ray.exceptions import RayError, RayTaskError

from grpo_trainer.errors import InvalidInputError


class ConsumersLostError(RuntimeError):
    """A training process died or missed its deadline: the group has to restart."""


async def call_ranks(calls: Sequence[Any], deadline_seconds: float) -> list[Any]:
    """The results of all ranks, in order; the first failure ends the wait for the others.

    Raises:
        ConsumersLostError: a rank died, raised, or did not answer by the deadline.
        InvalidInputError: a rank raised it.
    """
    try:
        async with asyncio.timeout(deadline_seconds):
            return list(await asyncio.gather(*calls))
    except TimeoutError as error:
        raise ConsumersLostError(
            f"no answer from the consumers in {deadline_seconds:g} s"
        ) from error
    except RayError as error:
        if isinstance(error, RayTaskError) and isinstance(error.cause, InvalidInputError):
            raise error.cause from error
        raise ConsumersLostError(describe(error)) from error


def describe(error: BaseException) -> str:
    """The last line of an actor's traceback, which states the failure."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else repr(error)
