"""One run directory, one run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from grpo_trainer.errors import InvalidInputError


@contextmanager
def only_run_in(directory: Path) -> Iterator[None]:
    """Keep other runs out of a directory; raises InvalidInputError when one is in it.

    The lock goes with the process, so that a killed run leaves none.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = FileLock(directory / ".lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise InvalidInputError(
            f"--run-dir: {directory} is in use by another run; wait for its end, or give another"
        ) from None
    except OSError as error:
        raise InvalidInputError(
            f"--run-dir: {directory} cannot be written to: {error.strerror}"
        ) from error
    try:
        yield
    finally:
        lock.release()
