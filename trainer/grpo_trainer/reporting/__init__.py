"""Reports of a run: files, metrics, progress, terminal and trackers behind one `Reporter`."""

from .layout import RunLayout
from .reporter import Reporter, open_reporter
from .tracking import check_tracking

__all__ = ["Reporter", "RunLayout", "check_tracking", "open_reporter"]
