"""The stacks of all threads of a process, as text."""

import sys
import threading
import traceback


def thread_stacks() -> str:
    """The stacks of all threads of this process, each under the name of its thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"thread {names.get(ident, ident)}\n{stack}")
    return "\n".join(parts)
