"""Log lines, as JSON or plain text, with the job that is reconciled."""

import json
import logging
import sys
from datetime import UTC, datetime

from .controller.workers import current_job


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        entry = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "job": current_job.get(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps({key: value for key, value in entry.items() if value})


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
