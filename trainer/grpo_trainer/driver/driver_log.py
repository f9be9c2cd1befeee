"""The driver's log in the run directory: its reports and all log records, rotated and bounded."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOBase
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TextIO, cast

REPORTS = "grpo_trainer.reports"
"""Logger whose records go to the file only: the terminal has its own display of them."""
MAX_BYTES = 10 << 20
BACKUPS = 2


class _LogFile(RotatingFileHandler):
    """Drops what cannot be written: a full disk must not flood the terminal or fail the run."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass

    def close(self) -> None:
        with suppress(OSError):
            super().close()


class _LinesToLogger(TextIOBase):
    """A text stream whose lines become log records."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def write(self, text: str) -> int:
        for line in text.splitlines():
            if line.strip():
                self._logger.info("%s", line)
        return len(text)


@contextmanager
def driver_log(path: Path) -> Iterator[TextIO]:
    """Write log records to a file for the block; yields a stream for the reports.

    Warnings still go to standard error where nothing else handles them.
    """
    handler = _LogFile(path, maxBytes=MAX_BYTES, backupCount=BACKUPS, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root, ours = logging.getLogger(), logging.getLogger("grpo_trainer")
    reports = logging.getLogger(REPORTS)
    reports.propagate = False
    handlers: list[logging.Handler] = [handler]
    if not root.handlers:
        terminal = logging.StreamHandler(sys.stderr)
        terminal.setLevel(logging.WARNING)
        handlers.append(terminal)
    level = ours.level
    ours.setLevel(logging.INFO)
    for each in handlers:
        root.addHandler(each)
    reports.addHandler(handler)
    try:
        yield cast(TextIO, _LinesToLogger(reports))
    finally:
        reports.removeHandler(handler)
        for each in handlers:
            root.removeHandler(each)
        ours.setLevel(level)
        handler.close()
