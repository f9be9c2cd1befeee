"""Run directories as an HTML page (`grpo report`) and on the terminal (`grpo show`, `compare`)."""

from .compare import compare_runs
from .page import render_page
from .run_data import RunData, load_run
from .show import show_run

__all__ = ["RunData", "compare_runs", "load_run", "render_page", "show_run"]
