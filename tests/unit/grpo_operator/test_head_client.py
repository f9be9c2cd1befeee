"""HTTP to a head, against a real server.

Aspects: token, submission, listing, progress of the right attempt, best-effort calls, every way of
not responding, and hostile heads: bodies, compression, redirects, cookies, proxies, slowness.
"""

import asyncio
import gzip
import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from grpo_operator.clients.ray import (
    ENTRYPOINT,
    MAX_BODY_BYTES,
    Head,
    HeadError,
    SubmissionRefusedError,
    TokenRefusedError,
)
from grpo_operator.clients.ray import session as new_session
from grpo_operator.model.observed import RayJobState
from grpo_trainer.spec import Progress, RunState
from support.observations import UID, job


class Served:
    """Answers by method and path; keeps what was asked."""

    def __init__(self):
        self.answers = {}
        self.asked = []

    async def handle(self, request):
        body = await request.text()
        self.asked.append((request.method, request.path, json.loads(body) if body else None))
        if request.headers.get("Authorization") != "Bearer secret":
            return web.Response(status=401)
        status, text = self.answers.get((request.method, request.path), (404, "no such page"))
        if isinstance(text, web.StreamResponse):
            return text
        content_type = "application/json" if status == 200 else "text/plain"
        return web.Response(status=status, text=text, content_type=content_type)


@pytest.fixture
async def served():
    return Served()


@pytest.fixture
async def head(served):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.handle)
    async with TestServer(app) as server, new_session() as session:
        base = str(server.make_url("")).rstrip("/")
        yield Head(session, base, f"{base}/driver", "secret")


async def test_a_submission_is_one_constant_command_with_the_attempt_beside_it(head, served):
    served.answers["POST", "/api/jobs/"] = (200, "{}")
    await head.submit(job(model={"path": "$(reboot)"}), 3)
    ((_, _, body),) = served.asked
    assert body["entrypoint"] == ENTRYPOINT == "python -m grpo_trainer.cluster"
    assert body["submission_id"] == f"{UID[:8]}-3"
    assert body["runtime_env"] == {"env_vars": {"GRPO_ATTEMPT": "3"}}
    assert "reboot" not in json.dumps(body)


async def test_a_refused_submission_says_what_ray_said(head, served):
    served.answers["POST", "/api/jobs/"] = (500, "Traceback: no such thing")
    with pytest.raises(SubmissionRefusedError, match="no such thing"):
        await head.submit(job(), 1)


async def test_attempts_are_listed(head, served):
    listing = [{"submission_id": f"{UID[:8]}-1", "status": "SUCCEEDED", "driver_exit_code": 0}]
    served.answers["GET", "/api/jobs/"] = (200, json.dumps(listing))
    (found,) = await head.jobs(job())
    assert (found.attempt, found.state, found.exit_code) == (1, RayJobState.SUCCEEDED, 0)


@pytest.mark.parametrize("text", ["", "<html>", "{}x", '[{"submission_id": "0a1b2c3d-1"}]', "[1]"])
async def test_an_invalid_listing_is_an_error(head, served, text):
    served.answers["GET", "/api/jobs/"] = (200, text)
    with pytest.raises(HeadError):
        await head.jobs(job())


async def test_progress_is_only_that_of_the_attempt(head, served):
    progress = Progress(attempt=2, state=RunState.RUNNING)
    served.answers["GET", "/driver/progress"] = (200, progress.model_dump_json(by_alias=True))
    assert await head.progress(2) == progress
    assert await head.progress(1) is None


@pytest.mark.parametrize("answer", [(404, ""), (200, "no json"), (200, '{"attempt": "x"}')])
async def test_an_invalid_progress_is_none(head, served, answer):
    served.answers["GET", "/driver/progress"] = answer
    assert await head.progress(1) is None


async def test_a_refused_token_is_an_error_of_its_own(head):
    with pytest.raises(TokenRefusedError):
        await Head(head.session, head.dashboard, head.driver, "old").jobs(job())


async def test_drain_stop_and_stacks_go_where_they_belong(head, served):
    for path in ("/driver/drain", "/driver/stacks", f"/api/jobs/{UID[:8]}-1/stop"):
        served.answers["POST", path] = (202, "")
    await head.drain()
    await head.dump_stacks()
    await head.stop(job(), 1)
    assert [path for _, path, _ in served.asked] == [
        "/driver/drain",
        "/driver/stacks",
        f"/api/jobs/{UID[:8]}-1/stop",
    ]


async def test_a_head_that_does_not_respond_is_an_error(head):
    gone = Head(head.session, "http://127.0.0.1:1", "http://127.0.0.1:1", "secret")
    with pytest.raises(HeadError):
        await gone.jobs(job())
    assert await gone.progress(1) is None


LISTING = "/api/jobs/"


async def refused(head, match):
    with pytest.raises(HeadError, match=match):
        await head.jobs(job())


async def test_a_body_over_a_megabyte_is_refused(head, served):
    served.answers["GET", LISTING] = (200, "[" + " " * MAX_BODY_BYTES + "]")
    await refused(head, "larger than 1048576 bytes")


async def test_a_compressed_body_is_refused_unread(head, served):
    bomb = gzip.compress(b"[" + b" " * (64 * MAX_BODY_BYTES) + b"]")
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    served.answers["GET", LISTING] = (200, web.Response(body=bomb, headers=headers))
    await refused(head, "content encoding 'gzip' was not accepted")


async def test_a_body_of_another_type_is_refused(head, served):
    served.answers["GET", LISTING] = (200, web.Response(text="[]", content_type="text/html"))
    await refused(head, "content type 'text/html'")


async def test_deeply_nested_json_is_refused(head, served):
    served.answers["GET", LISTING] = (200, "[" * 100_000)
    await refused(head, "not valid JSON")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(head, served, status):
    for method, path in (("GET", LISTING), ("POST", LISTING), ("POST", "/driver/drain")):
        elsewhere = web.Response(status=status, headers={"Location": "/metadata"})
        served.answers[method, path] = (status, elsewhere)
    await refused(head, f"status {status}")
    with pytest.raises(SubmissionRefusedError):
        await head.submit(job(), 1)
    with pytest.raises(HeadError):
        await head.drain()
    assert "/metadata" not in [path for _, path, _ in served.asked]


async def test_cookies_are_not_kept_for_other_heads(head, served):
    response = web.Response(text="[]", content_type="application/json")
    response.set_cookie("a", "b")
    served.answers["GET", LISTING] = (200, response)
    await head.jobs(job())
    assert list(head.session.cookie_jar) == []


async def test_no_proxy_of_the_environment_is_used(head, served, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    served.answers["GET", LISTING] = (200, "[]")
    assert await head.jobs(job()) == ()


async def test_a_body_that_never_ends_is_given_up(served, monkeypatch):
    monkeypatch.setattr("grpo_operator.clients.ray.POLL_TIMEOUT_SECONDS", 0.2)

    async def trickle(request):
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.02)

    app = web.Application()
    app.router.add_get(LISTING, trickle)
    async with TestServer(app) as server, new_session() as session:
        base = str(server.make_url("")).rstrip("/")
        await refused(Head(session, base, base, "secret"), "TimeoutError")
