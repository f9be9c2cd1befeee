"""The driver's end of the connection to a scoring process."""

from __future__ import annotations

import asyncio
import pickle
import socket
from typing import Any

from .worker import LENGTH


class Channel(asyncio.Protocol):
    """Sends bytes and receives messages, which are pickles preceded by their length.

    Messages that arrive together wake a waiting call once.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._messages: list[Any] = []
        self._waiting: asyncio.Future[None] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self.closed = False
        """Whether this end or the other one has closed it."""

    @classmethod
    async def open(cls, connected: socket.socket) -> Channel:
        """A channel over a connected socket, which it owns."""
        _, channel = await asyncio.get_running_loop().create_connection(cls, sock=connected)
        return channel

    def send(self, data: bytes) -> None:
        """Queue data; what cannot be sent any more is dropped, and `wait` raises."""
        if self._transport is not None and not self.closed:
            self._transport.write(data)

    async def wait(self) -> None:
        """Wait for a message, unless there is one; raises ConnectionError when none will come."""
        if self._messages:
            return
        if self.closed:
            raise ConnectionError("the connection is closed")
        assert self._waiting is None, "one call at a time"
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def received(self) -> list[Any]:
        """The messages that have arrived since the last call, in order."""
        messages, self._messages = self._messages, []
        return messages

    def close(self) -> None:
        """Close this end."""
        if self._transport is not None:
            self._transport.close()
        self._end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._data)[0]
            if len(self._data) < end:
                break
            self._messages.append(pickle.loads(memoryview(self._data)[LENGTH.size : end]))
            del self._data[:end]
        if self._messages and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        self.closed = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError("the connection was closed"))
