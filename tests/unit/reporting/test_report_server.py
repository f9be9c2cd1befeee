"""The HTTP server of the driver, with a real client: metrics, progress, health, drain requests and
their token, the port, and the files with address and token."""

import asyncio
import socket
import stat
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.options import RunOptions
from grpo_trainer.reporting.metrics import MetricValues
from grpo_trainer.reporting.paths import RunPaths
from grpo_trainer.reporting.progress import ProgressTracker
from grpo_trainer.reporting.prometheus import Exposition
from grpo_trainer.reporting.server import Server
from grpo_trainer.spec import Progress

TOKEN = "the-job's-token"


class Run:
    """A server with what it serves."""

    def __init__(self, options: RunOptions) -> None:
        self.layout = RunPaths.of(options)
        self.layout.create()
        self.tracker = ProgressTracker(attempt=1)
        self.values = MetricValues()
        self.drains = 0
        self.server = Server(
            *(options, self.layout, Exposition(self.values), self.tracker),
            *(self._drain, self._stacks),
        )

    def _drain(self) -> None:
        self.drains += 1

    async def _stacks(self) -> Path:
        path = self.layout.logs / "stacks.txt"
        path.write_text("driver")
        return path


@pytest.fixture
async def served(options):
    """A running server with the token TOKEN, its URL and a client."""
    run = Run(replace(options, token=TOKEN))
    url = await run.server.start()
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(10)) as client:
        yield run, client
    await run.server.stop()


async def test_metrics_are_in_prometheus_text(served, step_report):
    run, client = served
    run.values.step(step_report())
    async with client.get("/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        families = text_string_to_metric_families(await response.text())
    values = {s.name: s.value for f in families for s in f.samples}
    assert values["grpo_reward_mean"] == 4.5


async def test_progress_is_the_record_of_the_api(served, step_report):
    run, client = served
    run.tracker.step(step_report(), {})
    async with client.get("/progress") as response:
        assert response.content_type == "application/json"
        assert Progress.model_validate(await response.json()) == run.tracker.current


async def test_a_lingering_server_stops_once_the_outcome_was_read(served, summary):
    run, client = served
    lingering = asyncio.create_task(run.server.linger(3600))
    async with client.get("/progress"):
        assert not lingering.done(), "a run that is not over"
    run.tracker.finish(summary)
    async with client.get("/progress") as response:
        assert (await response.json())["state"] == "succeeded"
    await asyncio.wait_for(lingering, 10)


async def test_a_server_lingers_no_longer_than_its_limit(served, summary):
    run, _ = served
    run.tracker.finish(summary)
    await asyncio.wait_for(run.server.linger(0.01), 10)


async def test_health_needs_no_credentials(served):
    _, client = served
    async with client.get("/healthz") as response:
        assert response.status == 200


@pytest.mark.parametrize(
    "header", [None, "", TOKEN, f"Bearer {TOKEN}x", "Bearer ", f"Basic {TOKEN}", "Bearer \xff"]
)
async def test_a_drain_without_the_token_is_unauthorized(served, header):
    run, client = served
    headers = {} if header is None else {"Authorization": header}
    async with client.post("/drain", headers=headers) as response:
        assert response.status == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
    assert run.drains == 0


async def test_repeated_drains_are_accepted_and_have_one_effect(served):
    run, client = served
    for _ in range(3):
        async with client.post("/drain", headers={"Authorization": f"Bearer {TOKEN}"}) as response:
            assert response.status == 202
    assert run.drains == 1


async def test_get_drain_has_no_effect(served):
    run, client = served
    async with client.get("/drain", headers={"Authorization": f"Bearer {TOKEN}"}) as response:
        assert response.status == 405
    assert run.drains == 0


async def test_a_port_in_use_is_replaced_by_a_free_one(options):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        run = Run(replace(options, port=taken))
        url = await run.server.start()
        async with aiohttp.ClientSession(url) as client, client.get("/healthz") as response:
            assert response.status == 200
        await run.server.stop()
    assert not url.endswith(f":{taken}")


async def test_in_a_cluster_the_address_is_that_of_the_pod(options):
    run = Run(replace(options, host="0.0.0.0", advertised_host="10.1.2.3"))
    await run.server.start()
    assert run.layout.endpoint.read_text().startswith("http://10.1.2.3:")
    await run.server.stop()


async def test_the_run_directory_has_the_address_of_a_running_server(options):
    run = Run(options)
    url = await run.server.start()
    assert run.layout.endpoint.read_text() == url + "\n"
    await run.server.stop()
    assert not run.layout.endpoint.exists()
    assert not run.layout.drain_token.exists()


async def test_a_generated_token_is_readable_by_its_owner_only(options):
    run = Run(options)
    run.layout.drain_token.write_text("old and readable by all")
    run.layout.drain_token.chmod(0o644)
    url = await run.server.start()
    assert stat.S_IMODE(run.layout.drain_token.stat().st_mode) == 0o600
    token = run.layout.drain_token.read_text()
    async with (
        aiohttp.ClientSession(url, headers={"Authorization": f"Bearer {token}"}) as client,
        client.post("/drain") as response,
    ):
        assert response.status == 202
    await run.server.stop()


async def test_a_given_token_is_not_written(served):
    run, _ = served
    assert not run.layout.drain_token.exists()


async def test_a_server_on_all_addresses_is_reached_on_loopback(options):
    run = Run(replace(options, host="0.0.0.0"))
    url = await run.server.start()
    await run.server.stop()
    assert url.startswith("http://127.0.0.1:")


async def test_an_address_of_another_machine_is_bad_input(options):
    run = Run(replace(options, host="192.0.2.1", port=9464))
    with pytest.raises(InvalidInputError, match=r"--host 192\.0\.2\.1 --port 9464: cannot listen"):
        await run.server.start()
    await run.server.stop()


async def test_stacks_need_the_token(served):
    _run, client = served
    async with client.post("/stacks") as response:
        assert response.status == 401
    async with client.post("/stacks", headers={"Authorization": f"Bearer {TOKEN}"}) as response:
        assert response.status == 200
        assert Path((await response.text()).strip()).read_text() == "driver"
