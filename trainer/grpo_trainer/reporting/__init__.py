"""Reports of a run: files, metrics, progress, terminal and trackers behind one `Reporter`."""

from .paths import RunPaths
from .reporter import Reporter, open_reporter
from .tracking import check_tracking

__all__ = ["Reporter", "RunPaths", "check_tracking", "open_reporter"]
