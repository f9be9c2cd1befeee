"""Calls to the API server, against a server that is real HTTP.

Aspects: so many at once and no more, what waits is counted, what each refusal means, answers that
are none, lists of nothing but metadata.
"""

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client

from grpo_operator.clients.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    UnknownKindError,
)
from grpo_operator.clients.kube import Kube, Metadata
from grpo_operator.metrics import Metrics
from grpo_operator.model.resources import PODS


class Served:
    """Answers with a status; while it waits, with nothing."""

    def __init__(self):
        self.status, self.text = 200, "{}"
        self.asked, self.proceed = asyncio.Queue(), asyncio.Event()
        self.proceed.set()

    async def handle(self, request):
        self.asked.put_nowait(request)
        await self.proceed.wait()
        return web.Response(status=self.status, text=self.text)


@pytest.fixture
async def served():
    return Served()


@pytest.fixture
async def metrics():
    return Metrics()


@pytest.fixture
async def kube(served, metrics):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.handle)
    async with TestServer(app) as server:
        configuration = client.Configuration(host=str(server.make_url("")).rstrip("/"))
        async with client.ApiClient(configuration) as api:
            yield Kube(api, metrics, concurrency=2)
            served.proceed.set()


async def test_so_many_calls_are_made_at_once_and_the_others_wait_their_turn(kube, served, metrics):
    served.proceed.clear()
    calls = [asyncio.create_task(kube.get(PODS, "lab", str(number))) for number in range(5)]
    for _ in range(2):
        await asyncio.wait_for(served.asked.get(), 5)
    await asyncio.sleep(0.05)
    assert served.asked.empty()
    assert metrics.registry.get_sample_value("grpo_operator_queue_depth") == 3
    served.proceed.set()
    assert await asyncio.wait_for(asyncio.gather(*calls), 5) == [{}] * 5
    assert metrics.registry.get_sample_value("grpo_operator_queue_depth") == 0


@pytest.mark.parametrize(
    ("status", "text", "meaning"),
    [
        (401, "", UnavailableError),
        (403, "", ForbiddenError),
        (404, "404 page not found", UnknownKindError),
        (404, '{"reason": "NotFound", "details": {"name": "x"}}', NotFoundError),
        (409, "", ConflictError),
        (409, '{"reason": "Conflict"}', ConflictError),
        (409, '{"reason": "AlreadyExists"}', AlreadyExistsError),
        (422, "", RefusedError),
        (429, "", UnavailableError),
        (500, "", UnavailableError),
        (500, '{"message": "admission webhook \\"w\\" denied the request: no"}', RefusedError),
        (503, "no JSON", UnavailableError),
    ],
)
async def test_a_refusal_is_one_of_a_few_meanings(kube, served, status, text, meaning):
    served.status, served.text = status, text
    with pytest.raises(meaning) as error:
        await kube.get(PODS, "lab", "x")
    assert type(error.value) is meaning
    assert error.value.code == status


@pytest.mark.parametrize("text", ["<html>", "[]", ""])
async def test_an_answer_that_is_not_the_api_servers_is_none(kube, served, text):
    served.text = text
    with pytest.raises(UnavailableError, match="NoAnswer"):
        await kube.get(PODS, "lab", "x")


async def test_a_list_of_versions_asks_for_no_more_than_metadata(kube, served):
    served.text = """{"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {
        "namespace": "lab", "name": "p", "resourceVersion": "7", "managedFields": [{}]}}]}"""
    assert await kube.list_metadata(PODS, None, "a=b") == [Metadata("lab", "p", "7")]
    request = await served.asked.get()
    assert "as=PartialObjectMetadataList" in request.headers["Accept"]
    assert request.query == {"resourceVersion": "0", "labelSelector": "a=b"}
    assert request.path == "/api/v1/pods"
