"""A fake of Ray's Jobs API and of the driver, over HTTP, for the heads of all jobs.

Nothing runs on the nodes of the test cluster, so one server responds for all pods, distinguished by
URL. It follows Ray's rules: each call needs the token, and a submission id is used only once.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

DASHBOARD, DRIVER = "8265", "9464"


@dataclass
class FakeHead:
    """One head: what runs on it, and what was asked of it."""

    changed: asyncio.Condition
    token: str | None = None
    """The first that it was asked with; any other is refused."""
    reachable: bool = True
    hostile: Callable[[], web.Response] | None = None
    """What it responds to every request instead."""
    drains: bool = True
    """Whether a driver that is asked to drain ends at once."""
    submissions: list[dict[str, Any]] = field(default_factory=list)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    progress: dict[str, Any] | None = None
    polls: int = 0
    """How often the driver was asked for its progress."""
    asked: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)

    @property
    def attempts(self) -> list[int]:
        """Every attempt that was ever submitted, in order."""
        return [int(s["submission_id"].rsplit("-", 1)[1]) for s in self.submissions]

    @property
    def active(self) -> list[str]:
        return [name for name, run in self.runs.items() if run["status"] == "RUNNING"]

    async def until(self, holds: Callable[["FakeHead"], Any], timeout: float = 40) -> None:
        """Waits until it holds of this head."""
        async with asyncio.timeout(timeout), self.changed:
            await self.changed.wait_for(lambda: holds(self))

    async def until_running(self, attempt: int, timeout: float = 40) -> None:
        await self.until(
            lambda head: any(name.endswith(f"-{attempt}") for name in head.active), timeout
        )

    async def until_polled(self, times: int) -> None:
        """Waits until the driver was asked for its progress so many more times."""
        polls = self.polls + times
        await self.until(lambda head: head.polls >= polls)

    def report(self, step: int, **metrics: Any) -> None:
        """The driver has come to a step."""
        assert self.progress is not None, "no driver runs"
        self.progress["progress"] = {"step": step, "totalSteps": 100, "percent": float(step)}
        self.progress["metrics"] = metrics

    def report_code_protection(self, found: str) -> None:
        """The driver says what keeps the programs of completions from files."""
        assert self.progress is not None, "no driver runs"
        self.progress["codeProtection"] = found

    def say_last_word(self, step: int) -> None:
        """The driver is done, and waits to be asked how it went."""
        self.report(step)
        assert self.progress is not None
        self.progress["state"] = "succeeded"

    def end(self, exit_code: int, message: str = "") -> None:
        """The driver ends."""
        (name,) = self.active
        status = "SUCCEEDED" if exit_code == 0 else "FAILED"
        self.runs[name] |= {
            "status": status,
            "driver_exit_code": exit_code,
            "message": message,
        }
        self.progress = None

    def restart(self) -> None:
        """Ray restarts and has no jobs."""
        self.runs, self.progress = {}, None


@dataclass
class FakeRay:
    """All heads by the name of their Service."""

    url_template: str
    heads: dict[str, FakeHead] = field(default_factory=dict)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    hanging: bool = False
    """Whether connections are taken and nothing is said on them."""
    on_submit: Callable[[], None] = lambda: None
    """Runs when a driver has been started, before the answer is sent."""

    @classmethod
    @contextlib.asynccontextmanager
    async def serve(cls) -> AsyncIterator["FakeRay"]:
        """A server that answers inside the block."""
        ray = cls("")
        app = web.Application()
        app.router.add_route("*", "/{namespace}/{service}/{port}/{path:.*}", ray._answer)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        ray.url_template = f"http://127.0.0.1:{port}/{{namespace}}/{{service}}/{{port}}"
        try:
            yield ray
        finally:
            await runner.cleanup()

    async def only_head(self, timeout: float = 40) -> FakeHead:
        """Waits until the operator speaks to a head; there is one."""
        async with asyncio.timeout(timeout), self.changed:
            await self.changed.wait_for(lambda: self.heads)
        (head,) = self.heads.values()
        return head

    async def _answer(self, request: web.Request) -> web.Response:
        service, port = request.match_info["service"], request.match_info["port"]
        async with self.changed:
            await self.changed.wait_for(lambda: not self.hanging)
            head = self.heads.setdefault(service, FakeHead(self.changed))
            response = await self._route(head, port, request)
            self.changed.notify_all()
        return response

    async def _route(self, head: FakeHead, port: str, request: web.Request) -> web.Response:
        if not head.reachable:
            return web.Response(status=502)
        if head.hostile is not None:
            head.polls += 1
            return head.hostile()
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        head.token = head.token or token
        if not token or token != head.token:
            return web.Response(status=401)
        path = request.match_info["path"]
        if port == DRIVER:
            return self._driver(head, request.method, path)
        assert port == DASHBOARD, port
        return await self._dashboard(head, request, path)

    def _driver(self, head: FakeHead, method: str, path: str) -> web.Response:
        if head.progress is None:
            return web.Response(status=502)
        if (method, path) == ("GET", "progress"):
            head.polls += 1
            return web.json_response(head.progress)
        head.asked.append(path)
        if (method, path) == ("POST", "drain"):
            head.progress["state"] = "draining"
            if head.drains:
                head.end(75, "stopped with a checkpoint")
            return web.json_response({}, status=202)
        if (method, path) == ("POST", "stacks"):
            return web.json_response({}, status=202)
        return web.Response(status=404)

    async def _dashboard(self, head: FakeHead, request: web.Request, path: str) -> web.Response:
        if (request.method, path) == ("GET", "api/jobs/"):
            listing = [{"submission_id": name, **run} for name, run in head.runs.items()]
            return web.json_response([*listing, {"type": "DRIVER", "submission_id": None}])
        if (request.method, path) == ("POST", "api/jobs/"):
            return self._submit(head, json.loads(await request.text()))
        if request.method == "POST" and path.endswith("/stop"):
            name = path.split("/")[2]
            if name not in head.runs:
                return web.Response(status=404, text=f"Job {name} does not exist")
            head.stops.append(name)
            if name in head.active:
                head.runs[name]["status"] = "STOPPED"
                head.progress = None
            return web.json_response({"stopped": True})
        return web.Response(status=404)

    def _submit(self, head: FakeHead, body: dict[str, Any]) -> web.Response:
        name = body["submission_id"]
        if name in head.runs:
            return web.Response(status=500, text=f"Job with submission_id {name} already exists")
        head.submissions.append(body)
        head.runs[name] = {"status": "RUNNING", "driver_exit_code": None, "message": ""}
        attempt = int(body["runtime_env"]["env_vars"]["GRPO_ATTEMPT"])
        head.progress = {"state": "running", "attempt": attempt}
        self.on_submit()
        return web.json_response({"submission_id": name})
