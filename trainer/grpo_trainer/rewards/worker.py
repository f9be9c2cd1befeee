"""The worker process of `pool.py`: applies one function to items until its parent exits.

Everything runs on the main thread: some libraries fail on any other.
"""

import contextlib
import ctypes
import logging
import os
import pickle
import resource
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from ..errors import InvalidInputError

Context = TypeVar("Context")
Item = TypeVar("Item")
Result = TypeVar("Result")

LENGTH = struct.Struct("=I")
"""Every message is a pickle, preceded by its length."""
_PR_SET_PDEATHSIG = 1
_PACKAGE = Path(__file__).parents[1]
_MAX_DETAIL, _MAX_TRACE = 500, 4000


class FailureReason(StrEnum):
    """Why an item has no result."""

    TIMEOUT = "timeout"
    CRASH = "crash"
    EXCEPTION = "exception"
    UNAVAILABLE = "unavailable"
    """An endpoint was unreachable or overloaded until the deadline."""
    REFUSED = "refused"
    """An endpoint refused the request."""
    UNREADABLE = "unreadable"
    """The response of an endpoint has no score."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Replaces the result of an item."""

    reason: FailureReason
    detail: str = ""
    """The exception, and its file and line if they are not in this package."""
    trace: str = ""
    """The traceback, from the first frame outside this package."""


def encode(message: object) -> bytes:
    """A message as it is sent in either direction."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


def main() -> None:
    """Arguments: descriptor of the socket, process id of the parent."""
    descriptor, parent = map(int, sys.argv[1:])
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    # It warns about its disabled time limits.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    parent_gone = contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError)
    with socket.socket(fileno=descriptor) as connection, parent_gone:
        _serve(connection)


def _serve(connection: socket.socket) -> None:
    """First receives the factory and the memory limit, then pairs of context and items."""
    factory, memory_bytes = _receive(connection)
    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    try:
        function = factory()
    except InvalidInputError as error:
        connection.sendall(encode(error))
        return
    connection.sendall(encode(None))
    while True:
        context, items = _receive(connection)
        for result in function(items, context):
            connection.sendall(encode(result))


def each(
    function: Callable[[Item, Context], Result],
) -> Callable[[Sequence[Item], Context], Iterator[Result | Failure]]:
    """The function on several items, one after the other, with a Failure where it raises."""

    def apply(items: Sequence[Item], context: Context) -> Iterator[Result | Failure]:
        for item in items:
            result: Result | Failure
            try:
                result = function(item, context)
            except BaseException as error:  # also SystemExit, and the timeouts of Math-Verify
                result = failure_of(error)
            yield result

    return apply


def failure_of(error: BaseException) -> Failure:
    """The failure of an item whose function raised."""
    frames = traceback.extract_tb(error.__traceback__)
    while frames and Path(frames[0].filename).is_relative_to(_PACKAGE):
        del frames[0]
    text = f"{type(error).__name__}: {error}"[:_MAX_DETAIL]
    if not frames:
        return Failure(FailureReason.EXCEPTION, text)
    lines = [*frames.format(), *traceback.format_exception_only(error)]
    detail = f"{text} ({Path(frames[0].filename).name}, line {frames[0].lineno})"
    return Failure(FailureReason.EXCEPTION, detail, "".join(lines).rstrip()[-_MAX_TRACE:])


def _receive(connection: socket.socket) -> Any:
    (length,) = LENGTH.unpack(_read(connection, LENGTH.size))
    return pickle.loads(_read(connection, length))


def _read(connection: socket.socket, size: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < size:
        chunk = connection.recv(size - len(chunks))
        if not chunk:
            raise EOFError
        chunks += chunk
    return bytes(chunks)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent exits, even if a computation hangs."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the parent process has exited")


if __name__ == "__main__":
    main()
