"""SIGINT and SIGTERM: the first requests a stop with a checkpoint, the second exits at once."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

EXIT_AT_ONCE = 130
_SHOW_CURSOR = "\x1b[?25h\n"


class StopSignals:
    """Handles the signals of a run, from before its slow imports until its end."""

    def __init__(self) -> None:
        self._requested = False
        self._on_request: Callable[[], None] | None = None
        self._remove: tuple[Path, ...] = ()

    def install(self) -> None:
        """Handle the signals while there is no event loop: a request is kept for `attach`."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_early_signal)

    def attach(self, on_request: Callable[[], None], remove: tuple[Path, ...]) -> None:
        """Handle the signals in the running event loop.

        `on_request` is called at the first signal, or now if one has come. `remove` are the files
        that must not outlive this process.
        """
        self._on_request, self._remove = on_request, remove
        self.restore()
        if self._requested:
            on_request()

    def restore(self) -> None:
        """Handle the signals again after a library has installed handlers of its own.

        Ray's C++ core does, for SIGTERM, whatever Python's handler is.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)

    def _on_early_signal(self, number: int, frame: FrameType | None) -> None:
        self._on_signal()

    def _on_signal(self) -> None:
        if self._requested:
            self._exit_at_once()
        self._requested = True
        if self._on_request is not None:
            self._on_request()

    def _exit_at_once(self) -> NoReturn:
        """End this process without unwinding; the watchdog ends its Ray."""
        try:
            for path in self._remove:
                path.unlink(missing_ok=True)
            if sys.stdout.isatty():
                os.write(sys.stdout.fileno(), _SHOW_CURSOR.encode())
        finally:
            os._exit(EXIT_AT_ONCE)
