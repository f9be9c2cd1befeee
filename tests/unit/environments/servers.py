"""Environment servers in processes of their own, on loopback."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grpo_trainer.environments import sdk

MODULES = Path(__file__).parent / "modules"
COUNTING = f"{MODULES / 'counting.py'}:Counting"


@contextmanager
def served(cls: str, command: tuple[str, ...] = ("-m", sdk.__name__)) -> Iterator[str]:
    """The URL of a server of a class in `modules/counting.py`."""
    process = subprocess.Popen(
        [sys.executable, *command, f"{MODULES / 'counting.py'}:{cls}", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(f"environment {cls} at http://127.0.0.1:"), line
        yield line.split()[-1]
    finally:
        process.terminate()
        assert process.wait(30) == 0
