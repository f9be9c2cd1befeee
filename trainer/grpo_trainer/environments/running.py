"""The environment of a run: reached at its URL, or started from its module and kept alive."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from grpo_trainer.errors import InvalidInputError, RunFailedError, invalid
from grpo_trainer.spec.environment import EnvironmentSpec

from . import sdk
from .client import EnvironmentClient
from .protocol import EnvironmentFaultError, Health, Reason

URL_VARIABLE = "GRPO_ENVIRONMENT_URL"
"""Where the pods of a module are; the operator sets it."""
REACH_SECONDS = 10.0
"""Deadline for an environment that is said to run already."""
_RETRY_SECONDS = 0.2
_MAX_DELAY_SECONDS = 10.0
_EARLY_SECONDS = 5.0
_LOAD_SECONDS = 120.0
_STOP_SECONDS = 10.0
_COMMAND = (sys.executable, "-m", sdk.__name__)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningEnvironment:
    """An environment that can be called."""

    url: str
    health: Health
    servers: int = 1

    @property
    def capacity(self) -> int | None:
        """Episodes that all servers play at a time; None where there is no limit."""
        capacity = self.health.capacity
        return None if capacity is None else capacity * self.servers


@asynccontextmanager
async def running_environment(
    spec: EnvironmentSpec, log: Path
) -> AsyncIterator[RunningEnvironment]:
    """Reach the environment of a URL or of pods, or start the module in a process, which is
    restarted when it ends; `log` receives its output.

    Raises InvalidInputError if it cannot be started or reached, RunFailedError if its pods cannot
    be reached in time.
    """
    pods = os.environ.get(URL_VARIABLE)
    if spec.url is not None:
        health = await _reach(spec.url, REACH_SECONDS, "spec.environment.url")
        yield RunningEnvironment(spec.url, health)
    elif pods:
        try:
            seconds = spec.unavailable_timeout_seconds
            health = await _reach(pods, seconds, "spec.environment.pods")
        except InvalidInputError as error:
            raise RunFailedError(str(error)) from error
        yield RunningEnvironment(pods, health, spec.pods.replicas if spec.pods else 1)
    else:
        assert spec.module is not None
        async with _own_process(spec.module, log) as url:
            seconds = spec.unavailable_timeout_seconds
            yield RunningEnvironment(url, await _reach(url, seconds, "spec.environment.module"))


async def _reach(url: str, seconds: float, field: str) -> Health:
    """The environment's health, as soon as it answers; raises InvalidInputError at the deadline."""
    client, deadline = EnvironmentClient(url), time.monotonic() + seconds
    detail = "no answer"
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await client.health()
                except EnvironmentFaultError as error:
                    detail = error.detail
                    temporary = error.reason is Reason.UNAVAILABLE
                    if not temporary or time.monotonic() + _RETRY_SECONDS > deadline:
                        raise TimeoutError from error
                await asyncio.sleep(_RETRY_SECONDS)
    except TimeoutError:
        must = f"must be an environment that answers GET /health within {seconds:g} s: {detail}"
        raise InvalidInputError(invalid(field, url, must)) from None
    finally:
        await client.close()


@asynccontextmanager
async def _own_process(module: str, log: Path) -> AsyncIterator[str]:
    """Run the module until the end of the block; yields its URL.

    The listening socket is ours: a process that is restarted serves the same address, and calls
    wait for it meanwhile.
    """
    await asyncio.to_thread(check_module, module)
    with sdk.listen("127.0.0.1", 0) as listener:
        host, port = listener.getsockname()[:2]
        running = asyncio.create_task(_keep_running(module, listener, log))
        try:
            yield f"http://{host}:{port}"
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


def check_module(module: str) -> None:
    """Load the class in a process of its own; raises InvalidInputError if that fails. Blocks."""
    command = (*_COMMAND, module, "--check")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LOAD_SECONDS,
            env=_variables(),
        )
    except subprocess.TimeoutExpired:
        must = f"must be a class that can be loaded within {_LOAD_SECONDS:g} s"
    else:
        if done.returncode == 0:
            return
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        must = f"must be a class that can be loaded: {lines[-1]}"
    raise InvalidInputError(invalid("spec.environment.module", module, must))


async def _keep_running(module: str, listener: socket.socket, log: Path) -> None:
    """Restart the process whenever it ends, until cancelled."""
    delay = _RETRY_SECONDS
    while True:
        process, began = await _start(module, listener, log), time.monotonic()
        try:
            code = await process.wait()
        finally:
            await _stop(process)
        # A process that ends at once is not restarted at once.
        early = time.monotonic() - began < _EARLY_SECONDS
        delay = min(2 * delay, _MAX_DELAY_SECONDS) if early else _RETRY_SECONDS
        _log.warning("the environment %s ended with code %d; restarting it", module, code)
        await asyncio.sleep(delay)


async def _start(module: str, listener: socket.socket, log: Path) -> Process:
    descriptor = listener.fileno()
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *(*_COMMAND, module, "--fd", str(descriptor)),
            stdin=asyncio.subprocess.PIPE,  # its end is the end of this process
            stdout=output,
            stderr=output,
            pass_fds=(descriptor,),
            env=_variables(),
        )


def _variables() -> dict[str, str]:
    """Those of this process without Ray's, whose token opens the run."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


async def _stop(process: Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
