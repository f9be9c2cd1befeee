"""Calls to a server that must not delay training."""

import logging
import threading
from collections.abc import Callable
from queue import Empty, Full, Queue

_log = logging.getLogger(__name__)
_LIMIT = 1000
"""Calls that may wait; more are lost."""
_CLOSE_SECONDS = 30.0


class BackgroundCalls:
    """Makes calls in their order, in a thread. A call that fails is reported, and lost."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: Queue[Callable[[], object] | None] = Queue(_LIMIT)
        self._lost = 0
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], object]) -> None:
        try:
            self._waiting.put_nowait(call)
        except Full:
            self._lost += 1

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Wait until all calls are made, but at most so long."""
        if self._waiting.full():
            self._drop_oldest()
        self._waiting.put(None)
        self._thread.join(seconds)
        lost = self._lost + self._waiting.qsize()
        if lost:
            _log.warning("%s: %d reports were lost", self._name, lost)

    def _drop_oldest(self) -> None:
        try:
            self._waiting.get_nowait()
            self._lost += 1
        except Empty:
            return  # the thread was faster

    def _work(self) -> None:
        while (call := self._waiting.get()) is not None:
            try:
                call()
            except Exception as error:  # of any library; training must not end with it
                if not self._lost:
                    reason = str(error).partition("\n")[0]
                    _log.warning("%s: reports are lost: %s", self._name, reason)
                self._lost += 1
