"""A TCP relay between the operator and the API server that can fail. TLS passes through it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import yaml


@dataclass
class Relay:
    """Takes connections on a port of its own and passes on what is said on them."""

    host: str
    port: int
    """Of the API server."""
    own_port: int = 0
    late_bytes: int = 0
    """Sent to the API server after the network was restored, by callers that are gone."""
    _whole: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    @contextlib.asynccontextmanager
    async def before(cls, kubeconfig: Path) -> AsyncIterator["Relay"]:
        """A relay to the cluster of a kubeconfig, inside the block."""
        config = yaml.safe_load(kubeconfig.read_text())
        address = urlsplit(config["clusters"][0]["cluster"]["server"])
        assert address.hostname is not None
        assert address.port is not None
        relay = cls(address.hostname, address.port)
        await relay._listen()
        relay._whole.set()
        try:
            yield relay
        finally:
            await relay._refuse()

    def kubeconfig(self, original: Path, copy: Path) -> Path:
        """A kubeconfig with the same user, through this relay."""
        config = yaml.safe_load(original.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.own_port}"
        copy.write_text(yaml.safe_dump(config))
        return copy

    def cut(self) -> None:
        """From now on nothing passes. What is sent meanwhile arrives when it is restored: a kernel
        continues to send even for a process that has ended."""
        self._whole.clear()

    def restore(self) -> None:
        self._whole.set()

    @contextlib.asynccontextmanager
    async def down(self) -> AsyncIterator[None]:
        """Inside, all connections are gone and new ones are refused."""
        await self._refuse()
        try:
            yield
        finally:
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", self.own_port)
        self.own_port = self._server.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        assert self._server is not None
        self._server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            there, to_there = await asyncio.open_connection(self.host, self.port)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pass(reader, to_there, outward=True))
                    both.create_task(self._pass(there, writer))
            finally:
                to_there.transport.abort()
        except* (OSError, asyncio.CancelledError):
            pass  # one side has hung up, or the network is down
        finally:
            writer.transport.abort()
            self._connections.discard(task)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, outward: bool = False
    ) -> None:
        while data := await reader.read(1 << 16):
            held = not self._whole.is_set()
            await self._whole.wait()
            writer.write(data)
            if held and outward:
                self.late_bytes += len(data)
            await writer.drain()
        await self._whole.wait()
        writer.write_eof()
