"""The fake of Ray follows the rules of the real one: every test runs against both.

Aspects: submission and its duplicate, the list and what the operator reads in it, how drivers end,
stopping, unknown ids, wrong tokens.
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import psutil
import pytest

from grpo_operator.clients.ray import Head, HeadError, SubmissionRefusedError, TokenRefusedError
from grpo_operator.model.naming import submission_id
from grpo_operator.model.observed import RayJob, RayJobState
from kube.fake_ray import FakeRay
from kube.operator_harness import free_port
from support.observations import job

TOKEN = "token-of-this-head"
START_SECONDS, STOP_SECONDS = 120, 20
_DRIVER = """#!/bin/sh
while [ ! -e {ends}/$GRPO_ATTEMPT ]; do sleep 0.1; done
echo the last words of the driver
exit $(cat {ends}/$GRPO_ATTEMPT)
"""
"""Takes the place of Python in the entrypoint: runs until a test says how it ends."""


@dataclass(frozen=True)
class Side:
    """One of the two: a head, and how its drivers end."""

    head: Head
    end: Callable[[int, int], Awaitable[None]]
    """The driver of an attempt ends with an exit code."""

    async def until(self, attempt: int, *states: RayJobState, timeout: float = 60) -> RayJob:
        """Waits until the attempt is in one of the states."""
        async with asyncio.timeout(timeout):
            while True:
                found = {run.attempt: run for run in await self._jobs()}
                if attempt in found and found[attempt].state in states:
                    return found[attempt]
                await asyncio.sleep(0.2)  # Ray can only be asked again

    async def _jobs(self) -> tuple[RayJob, ...]:
        """Those of this test's job; a busy machine may miss one poll's deadline."""
        try:
            return await self.head.jobs(job())
        except HeadError as error:
            if "TimeoutError" in str(error):
                return ()
            raise


@contextlib.contextmanager
def real_ray(directory: Path) -> Iterator[str]:
    """A head of the real Ray on loopback; gives the URL of its dashboard."""
    port, agent, client, dashboard = (str(free_port()) for _ in range(4))
    ends, programs = directory / "ends", directory / "bin"
    ends.mkdir()
    programs.mkdir()
    driver = programs / "python"
    driver.write_text(_DRIVER.format(ends=ends))
    driver.chmod(0o755)
    own = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
    }
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            *("--node-ip-address", "127.0.0.1", "--port", port, "--num-cpus", "0"),
            *("--dashboard-host", "127.0.0.1", "--dashboard-port", dashboard),
            *("--dashboard-agent-listen-port", agent, "--ray-client-server-port", client),
            *("--temp-dir", str(directory / "ray"), "--object-store-memory", "80000000"),
        ],
        env=os.environ | own,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{dashboard}"
    finally:
        _stop(process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Ends Ray with all its processes, at last by force: how Ray ends is not what is tested."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    process.kill()
    process.wait()
    for relative in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            relative.kill()
    psutil.wait_procs(family, STOP_SECONDS)


@pytest.fixture(scope="module")
def ray_directory() -> Iterator[Path]:
    """A directory whose path leaves room for the names of Ray's sockets."""
    path = Path(tempfile.mkdtemp(prefix="grpo-test-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def dashboard(ray_directory: Path) -> Iterator[str]:
    with real_ray(ray_directory) as url:
        yield url


async def until_taking_drivers(head: Head) -> None:
    """Waits until a first driver is taken: Ray's dashboard answers well before its agent does."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            with contextlib.suppress(HeadError, SubmissionRefusedError):
                if await head.jobs(job()):
                    return
                await head.submit(job(), 0)
            await asyncio.sleep(0.5)  # it is not there to tell when it comes


@contextlib.asynccontextmanager
async def real_side(request: pytest.FixtureRequest) -> AsyncIterator[Side]:
    url: str = request.getfixturevalue("dashboard")
    ends: Path = request.getfixturevalue("ray_directory") / "ends"

    async def end(attempt: int, code: int) -> None:
        written = ends / f"{attempt}.new"
        written.write_text(str(code))
        written.rename(ends / str(attempt))

    async with aiohttp.ClientSession() as session:
        head = Head(session, url, url, TOKEN)
        await until_taking_drivers(head)
        await end(0, 0)
        yield Side(head, end)


@contextlib.asynccontextmanager
async def fake_side() -> AsyncIterator[Side]:
    async with FakeRay.serve() as ray, aiohttp.ClientSession() as session:

        def url(port: int) -> str:
            return ray.url_template.format(namespace="n", service="s", port=port)

        head = Head(session, url(8265), url(9464), TOKEN)
        await head.jobs(job())

        async def end(attempt: int, code: int) -> None:
            (only,) = ray.heads.values()
            only.end(code, "the last words of the driver")

        yield Side(head, end)


@pytest.fixture(params=["fake", "real"])
async def side(request: pytest.FixtureRequest) -> AsyncIterator[Side]:
    async with fake_side() if request.param == "fake" else real_side(request) as side:
        yield side


async def status_of(head: Head, method: str, path: str) -> int:
    """The status of a call without a body."""
    headers = {"Authorization": f"Bearer {head.token}"}
    async with head.session.request(method, f"{head.dashboard}{path}", headers=headers) as answer:
        return answer.status


async def test_a_driver_that_ends_well_has_succeeded(side: Side):
    await side.head.submit(job(), 1)
    running = await side.until(1, RayJobState.RUNNING)
    assert running.exit_code is None
    await side.end(1, 0)
    done = await side.until(1, RayJobState.SUCCEEDED)
    assert done.exit_code == 0


async def test_a_driver_that_fails_has_its_exit_code_and_the_end_of_its_log(side: Side):
    await side.head.submit(job(), 2)
    await side.until(2, RayJobState.RUNNING)
    await side.end(2, 64)
    failed = await side.until(2, RayJobState.FAILED)
    assert failed.exit_code == 64
    assert "the last words of the driver" in failed.message


async def test_an_attempt_is_submitted_once_and_stopped_for_good(side: Side):
    await side.head.submit(job(), 3)
    await side.until(3, RayJobState.RUNNING)
    with pytest.raises(SubmissionRefusedError, match=r"status 500(.|\n)*already exists"):
        await side.head.submit(job(), 3)
    await side.head.stop(job(), 3)
    await side.until(3, RayJobState.STOPPED)
    with pytest.raises(SubmissionRefusedError, match="already exists"):
        await side.head.submit(job(), 3)
    await side.head.stop(job(), 3)


async def test_what_is_unknown_cannot_be_stopped(side: Side):
    with pytest.raises(HeadError, match="status 404"):
        await side.head.stop(job(), 99)
    unknown = f"/api/jobs/{submission_id(job().uid, 99)}/stop"
    assert await status_of(side.head, "POST", unknown) == 404


async def test_without_the_right_token_nothing_is_returned(side: Side):
    stranger = replace(side.head, token="another")
    for refused in (
        stranger.jobs(job()),
        stranger.submit(job(), 4),
        stranger.stop(job(), 1),
    ):
        with pytest.raises(TokenRefusedError):
            await refused
    assert all(run.attempt != 4 for run in await side.head.jobs(job()))
