"""Reports of a run: one `Reporter` for files, metrics, progress, terminal and trackers."""

from .paths import RunPaths
from .reporter import Reporter, open_reporter
from .tracking import check_tracking

__all__ = ["Reporter", "RunPaths", "check_tracking", "open_reporter"]
