"""One run at a time in a run directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from grpo_trainer.errors import InvalidInputError, RunFailedError


@contextmanager
def only_run_in(directory: Path) -> Iterator[None]:
    """Lock a run directory for the block, creating it if necessary.

    The lock ends with the process. On a network file system it may outlive a lost node for a
    while, so a lock that is held is retryable.

    Raises:
        RunFailedError: another run holds the lock.
        InvalidInputError: the directory cannot be written to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = FileLock(directory / ".lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise RunFailedError(
            f"--run-dir: {directory} is in use by another run; wait for its end, or choose another"
        ) from None
    except OSError as error:
        raise InvalidInputError(
            f"--run-dir: {directory} cannot be written to: {error.strerror}"
        ) from error
    try:
        yield
    finally:
        lock.release()
