"""Log lines, as JSON or plain text, with the job that is reconciled."""

import logging
import sys
from typing import Any

from pythonjsonlogger.json import JsonFormatter as LibraryFormatter

from .controller.workers import current_job


class JsonFormatter(LibraryFormatter):
    """One JSON object per line."""

    def __init__(self) -> None:
        super().__init__(
            "%(levelname)s %(name)s %(message)s",
            rename_fields={"levelname": "level", "name": "logger", "exc_info": "error"},
            rename_fields_keep_missing=False,
            timestamp="time",
        )

    def add_fields(
        self,
        log_data: dict[str, Any],
        record: logging.LogRecord,
        message_dict: dict[str, Any],
    ) -> None:
        """The fields of the record, and the job if there is one."""
        super().add_fields(log_data, record, message_dict)
        if job := current_job.get():
            log_data["job"] = job


class PlainFormatter(logging.Formatter):
    """Time, level, job and message."""

    def format(self, record: logging.LogRecord) -> str:
        record.job = current_job.get() or "-"
        return super().format(record)


def configure(form: str, level: str) -> None:
    """Set up the root logger; kopf logs from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    plain = PlainFormatter("%(asctime)s %(levelname)s [%(job)s] %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else plain)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    # It warns that it does not handle signals, which is intended.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
