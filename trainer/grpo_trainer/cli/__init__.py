"""The command line. Light to import: the trainer's libraries load only for a run."""

from .main import main

__all__ = ["main"]
