"""Carries connections between a port of this machine's loopback and the same port of the loopback
inside a network namespace, so that one URL holds on both sides.

    gateway.py NAMESPACE PORT...    NAMESPACE: file of the network namespace, as in /proc/PID/ns/net
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import sys

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_CHUNK_BYTES = 1 << 16


def main() -> None:
    namespace, *ports = sys.argv[1:]
    # A socket stays in the namespace that it was made in: these listen outside.
    listeners = [socket.create_server(("127.0.0.1", int(port)), backlog=128) for port in ports]
    with open(namespace) as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    asyncio.run(_serve(listeners))


async def _serve(listeners: list[socket.socket]) -> None:
    servers = [await asyncio.start_server(_carry, sock=listener) for listener in listeners]
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    host, port = writer.get_extra_info("sockname")
    try:
        there_reader, there_writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        writer.transport.abort()  # a reset: the nearest there is to a refusal
        return
    await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one side has ended or is gone, and then ends the other."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    main()
