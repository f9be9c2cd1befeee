"""Commands inside a running container: what they print, and how they end."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from kubernetes.aio.stream import WsApiClient

from grpo_operator.model.resources import PODS

from .api import TIMEOUT_SECONDS, Api, Target
from .errors import CommandError, ForbiddenError, unreachable

Shell = Callable[[Sequence[str]], AsyncGenerator[bytes, None]]
"""Runs a command and yields its standard output; raises CommandError if it fails."""

RAY_CONTAINER = "ray"
"""Name of the container in a job's pods."""
_STDOUT, _STDERR, _STATUS = 1, 2, 3
"""Channels of the protocol v4.channel.k8s.io: the first byte of each message."""
_HEARTBEAT_SECONDS = 30
_MAX_STDERR = 2000


async def text_of(chunks: AsyncIterator[bytes]) -> str:
    """All that a command prints."""
    return b"".join([chunk async for chunk in chunks]).decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Container:
    """A running container, as a Shell. Needs the right to get and create `pods/exec`."""

    api: Api
    namespace: str
    pod: str
    name: str

    async def __call__(self, command: Sequence[str]) -> AsyncGenerator[bytes, None]:
        """Run it without a shell of its own, so that nothing is interpreted on the way."""
        async with self._websocket(command) as socket:
            stderr, ended = b"", False
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                    continue
                channel, data = message.data[0], message.data[1:]
                if channel == _STDOUT and data:
                    yield data
                elif channel == _STDERR:
                    stderr = (stderr + data)[-_MAX_STDERR:]
                elif channel == _STATUS:
                    self._raise_failure(json.loads(data), stderr)
                    ended = True
        if not ended:
            raise CommandError(f"pod {self.pod}: the connection broke before the command ended")

    @asynccontextmanager
    async def _websocket(
        self, command: Sequence[str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """The open connection of one command. Raises CommandError."""
        target = Target(PODS, self.namespace, self.pod, "exec")
        query = [("container", self.name), ("stdout", "true"), ("stderr", "true")]
        configuration = self.api.client.configuration
        async with WsApiClient(configuration, heartbeat=_HEARTBEAT_SECONDS) as client:
            method, url, headers, *_ = await client.param_serialize(
                method="GET",
                resource_path=target.path,
                query_params=[*query, *(("command", word) for word in command)],
                auth_settings=["BearerToken"],
            )
            answer = await client.call_api(method, url, headers, _preload_content=False)
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    socket: aiohttp.ClientWebSocketResponse = await answer.response
            except aiohttp.WSServerHandshakeError as error:
                raise _refusal(target, error.status) from error
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise unreachable(self.api.server, error) from error
            try:
                yield socket
            finally:
                await socket.close()

    def _raise_failure(self, status: dict[str, object], stderr: bytes) -> None:
        if status.get("status") == "Success":
            return
        said = " ".join(stderr.decode(errors="replace").split())
        raise CommandError(f"pod {self.pod}: {said or status.get('message', 'the command failed')}")


def _refusal(target: Target, status: int) -> CommandError:
    """The answer to a handshake has no text."""
    if status == 403:
        return ForbiddenError(f"not permitted: get and create {target}")
    return CommandError(f"refused: {target}: the API server answered {status}")
