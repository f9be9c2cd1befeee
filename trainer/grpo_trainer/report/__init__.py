"""`grpo report`: one HTML page about one or several runs, made from their run directories."""

from .page import render_page
from .run_data import RunData, load_run

__all__ = ["RunData", "load_run", "render_page"]
