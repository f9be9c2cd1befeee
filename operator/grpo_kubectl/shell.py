"""Commands in a running container: their output and their exit status.

The exec protocol is a WebSocket, which `grpo_operator.clients` does not need.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from kubernetes.aio.stream import WsApiClient

from grpo_operator.clients.errors import ApiError, ForbiddenError, UnavailableError
from grpo_operator.clients.kube import Kube
from grpo_operator.clients.transport import TIMEOUT_SECONDS, describe
from grpo_operator.model.resources import PODS

from .errors import CommandError

Shell = Callable[[Sequence[str]], AsyncGenerator[bytes, None]]
"""Runs a command and yields its standard output; raises CommandError if it fails."""

RAY_CONTAINER = "ray"
"""Name of the container in a job's pods."""
_STDOUT, _STDERR, _STATUS = 1, 2, 3
"""Channels of the protocol v4.channel.k8s.io: the first byte of each message."""
_HEARTBEAT_SECONDS = 30
_MAX_STDERR = 2000


async def text_of(chunks: AsyncIterator[bytes]) -> str:
    """The whole output of a command."""
    return b"".join([chunk async for chunk in chunks]).decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Container:
    """A running container, as a Shell. Needs the right to get and create `pods/exec`."""

    kube: Kube
    namespace: str
    pod: str
    name: str

    async def __call__(self, command: Sequence[str]) -> AsyncGenerator[bytes, None]:
        """Run a command without a shell, so that its words arrive unchanged.

        Raises CommandError for a command that fails, ApiError for a call that does.
        """
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
        """The open connection of one command. Raises ApiError or CommandError."""
        query = [("container", self.name), ("stdout", "true"), ("stderr", "true")]
        configuration = self.kube.api.configuration
        async with WsApiClient(configuration, heartbeat=_HEARTBEAT_SECONDS) as client:
            method, url, headers, *_ = await client.param_serialize(
                method="GET",
                resource_path=PODS.path(self.namespace, self.pod, "exec"),
                query_params=[*query, *(("command", word) for word in command)],
                auth_settings=["BearerToken"],
            )
            answer = await client.call_api(method, url, headers, _preload_content=False)
            call = describe("get and create", PODS, self.namespace, self.pod, "exec")
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    socket: aiohttp.ClientWebSocketResponse = await answer.response
            except aiohttp.WSServerHandshakeError as error:
                raise _refusal(call, error.status) from error
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise UnavailableError(0, type(error).__name__, str(error), call) from error
            try:
                yield socket
            finally:
                await socket.close()

    def _raise_failure(self, status: dict[str, object], stderr: bytes) -> None:
        if status.get("status") == "Success":
            return
        said = " ".join(stderr.decode(errors="replace").split())
        raise CommandError(f"pod {self.pod}: {said or status.get('message', 'the command failed')}")


def _refusal(call: str, status: int) -> ApiError | CommandError:
    """A refused handshake has no body."""
    if status == 403:
        return ForbiddenError(status, "Forbidden", "", call)
    return CommandError(f"refused: {call}: the API server responded with status {status}")
