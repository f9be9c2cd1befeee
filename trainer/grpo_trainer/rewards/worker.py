"""The process behind `pool.py`: calls one function on items until its parent goes away.

The main thread does the work and nothing else runs: some libraries fail off the main thread.
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
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..errors import InvalidInputError

LENGTH = struct.Struct("=I")
"""Every message is a pickle with its length in front."""
_PR_SET_PDEATHSIG = 1


class FailureReason(StrEnum):
    """Why an item has no result."""

    TIMEOUT = "timeout"
    CRASH = "crash"
    EXCEPTION = "exception"


@dataclass(frozen=True, slots=True)
class Failure:
    """Stands in for the result of an item."""

    reason: FailureReason
    detail: str = ""


def encode(message: object) -> bytes:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


def main() -> None:
    """Arguments: descriptor of the socket, the parent's process id."""
    descriptor, parent = map(int, sys.argv[1:])
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it has no deadline
    parent_gone = contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError)
    with socket.socket(fileno=descriptor) as connection, parent_gone:
        _serve(connection)


def _serve(connection: socket.socket) -> None:
    """First a factory of the function and the memory limit, then pairs of context and items."""
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
        for item in items:
            connection.sendall(encode(_apply(function, context, item)))


def _apply(function: Any, context: Any, item: Any) -> Any:
    try:
        return function(item, context)
    except BaseException as error:  # also SystemExit, and the timeouts of Math-Verify
        return Failure(FailureReason.EXCEPTION, f"{type(error).__name__}: {error}"[:500])


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
    """Have the kernel end this process with its parent, even while a computation hangs."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the parent is gone")


if __name__ == "__main__":
    main()
