"""Records docs/operator-session.md: runs its commands and replaces their outputs.

    KUBECONFIG=FILE PATH=DIRECTORY_OF_HELM:$PATH .venv/bin/python docs/record_session.py

The commands are the lines of `console` blocks that begin with `$`. An output of `...` stays. A
comment `<!-- until: CONDITION -->` is repeated until the shell condition holds.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "operator-session.md"
COMMAND_SECONDS = 900.0
UNTIL_SECONDS = 900.0
POLL_SECONDS = 1.0
_CONSOLE = "```console\n"
_PARTS = re.compile(r"(^```console\n.*?^```$|^<!-- until: .+ -->$)", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ (.+)\n", re.MULTILINE)


def recorded(page: str, run: Callable[[str], str], until: Callable[[str], None]) -> str:
    """The page with the outputs that `run` returns; `until` waits for a condition."""
    parts: list[str] = []
    for part in _PARTS.split(page):
        if part.startswith(_CONSOLE):
            part = _block(part.removeprefix(_CONSOLE).removesuffix("```"), run)
        elif part.startswith("<!-- until: "):
            until(part.removeprefix("<!-- until: ").removesuffix(" -->"))
        parts.append(part)
    return "".join(parts)


def _block(body: str, run: Callable[[str], str]) -> str:
    _, *pieces = _COMMAND.split(body)
    entries = []
    for command, before in zip(pieces[::2], pieces[1::2], strict=True):
        output = before.strip() if before.strip() == "..." else run(command).strip()
        entries.append(f"$ {command}\n" + (f"{output}\n" if output else ""))
    return _CONSOLE + "\n".join(entries) + "```"


def main() -> None:
    """Replace the page; a command or condition that times out leaves it as it was."""
    PAGE.write_text(recorded(PAGE.read_text(), _run, _until))


def _run(command: str) -> str:
    """The output of a command, also of one that fails: the page shows a refused change."""
    print(f"$ {command}", file=sys.stderr)
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    return "\n".join(line.rstrip() for line in done.stdout.splitlines())


def _until(condition: str) -> None:
    deadline = time.monotonic() + UNTIL_SECONDS
    while subprocess.run(["bash", "-c", condition], cwd=ROOT).returncode != 0:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {UNTIL_SECONDS:.0f} s: {condition}")
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main()
