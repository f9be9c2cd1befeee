"""Commands in containers: the protocol v4.channel.k8s.io against a small server.

Aspects: output, exit status, failures, a connection that breaks, missing rights.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from kubernetes.aio import client

from grpo_kubectl.errors import CommandError
from grpo_kubectl.shell import Container, text_of
from grpo_operator.clients.errors import ForbiddenError
from grpo_operator.clients.kube import Kube

SUCCESS = {"metadata": {}, "status": "Success"}
FAILURE = {"status": "Failure", "message": "command terminated with non-zero exit code"}


@asynccontextmanager
async def container(frames: list[bytes], seen: Callable[[web.Request], None]) -> AsyncIterator:
    """A container whose every command is answered by these frames."""

    async def answer(request: web.Request) -> web.WebSocketResponse:
        seen(request)
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        for frame in frames:
            await socket.send_bytes(frame)
        await socket.close()
        return socket

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/lab/pods/head/exec", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    configuration = client.Configuration()
    configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with client.ApiClient(configuration) as api:
            yield Container(Kube(api), "lab", "head", "ray")
    finally:
        await runner.cleanup()


async def printed(*frames: bytes, seen: Callable[[web.Request], None] = lambda request: None):
    async with container(list(frames), seen) as shell:
        return await text_of(shell(("cat", "a file", "$HOME")))


def status(body: dict) -> bytes:
    return b"\x03" + json.dumps(body).encode()


async def test_standard_output_is_put_together():
    assert (
        await printed(b"\x01", b"\x01one ", b"\x02noise", b"\x01two", status(SUCCESS)) == "one two"
    )


async def test_each_word_of_a_command_arrives_as_it_is():
    queries = []
    await printed(status(SUCCESS), seen=lambda request: queries.append(request.query))
    (query,) = queries
    assert query.getall("command") == ["cat", "a file", "$HOME"]
    assert (query["container"], query["stdout"], query["stderr"]) == ("ray", "true", "true")


async def test_a_failure_has_the_message_of_the_command():
    with pytest.raises(CommandError, match=r"pod head: no such file$"):
        await printed(b"\x01part", b"\x02no such\nfile\n", status(FAILURE))


async def test_a_failure_without_a_message_has_that_of_the_api_server():
    with pytest.raises(CommandError, match="pod head: command terminated with non-zero exit code"):
        await printed(status(FAILURE))


async def test_a_connection_that_breaks_is_not_taken_for_the_end():
    with pytest.raises(CommandError, match="the connection broke before the command ended"):
        await printed(b"\x01part")


async def test_a_missing_right_is_named():
    def forbid(request: web.Request) -> None:
        raise web.HTTPForbidden

    with pytest.raises(ForbiddenError) as error:
        await printed(seen=forbid)
    assert error.value.call == "get and create pods/exec head in namespace lab"


async def test_a_pod_that_is_gone_is_named():
    def gone(request: web.Request) -> None:
        raise web.HTTPNotFound

    with pytest.raises(CommandError, match=r"refused: .*pods/exec head in namespace lab: .* 404"):
        await printed(seen=gone)
