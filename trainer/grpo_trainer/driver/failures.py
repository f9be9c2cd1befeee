"""The one place that decides how an error ends a run: exit code 64, 1, or a traceback."""

import errno
import shutil
from pathlib import Path

from grpo_trainer.errors import InvalidInputError, RunFailedError
from grpo_trainer.outages import is_outage

from .ray_calls import ConsumersLostError

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def classify(error: BaseException, run_directory: Path) -> BaseException:
    """The error that a run reports.

    Returns:
        InvalidInputError: the input can never work (exit code 64).
        RunFailedError: an outage of disk, network, hub or workers (exit code 1, no traceback).
        anything else: unexpected; it keeps its traceback.
    """
    cause = root_cause(error)
    if isinstance(cause, InvalidInputError):
        # A library's error may have been read as bad input although the hub or the disk is down.
        behind = cause.__cause__
        return RunFailedError(str(cause)) if behind and is_outage(behind) else cause
    if isinstance(cause, OSError) and cause.errno in _DISK_FULL:
        return RunFailedError(_disk_full(cause, run_directory))
    if isinstance(cause, ConsumersLostError):
        return RunFailedError(f"the consumers were lost: {cause}")
    if not isinstance(cause, RunFailedError) and is_outage(cause):
        return RunFailedError(f"{type(cause).__name__}: {cause}")
    return cause


def root_cause(error: BaseException) -> BaseException:
    """The first error in nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _disk_full(error: OSError, run_directory: Path) -> str:
    free = shutil.disk_usage(run_directory).free
    place = error.filename or run_directory
    return (
        f"{place}: no space left on device, {free / 1e6:.0f} MB are free; delete files or set a "
        "smaller checkpoint.keepLast, then run the same command to resume"
    )
