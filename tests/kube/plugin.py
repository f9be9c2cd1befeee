"""`kubectl grpo` as a process of its own."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@contextlib.asynccontextmanager
async def running(
    *command: str, environment: Mapping[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Inside the block a command runs."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def table_of(printed: str) -> list[dict[str, str]]:
    """The rows of a table whose cells have no spaces."""
    header, *lines = (line.split() for line in printed.splitlines())
    return [dict(zip(header, line, strict=True)) for line in lines]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int | None
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, str]]:
        """The table that it printed."""
        return table_of(self.out)


@dataclass(frozen=True)
class Plugin:
    """The program, as one user in one namespace."""

    kubeconfig: Path
    namespace: str

    async def __call__(self, *words: str) -> Ended:
        async with self.running(*words) as process:
            out, err = await asyncio.wait_for(process.communicate(), 60)
        return Ended(process.returncode, out.decode(), err.decode())

    def running(
        self, *words: str
    ) -> contextlib.AbstractAsyncContextManager[asyncio.subprocess.Process]:
        """Inside the block it runs."""
        return running(
            *(sys.executable, "-m", "grpo_kubectl.cli", "-n", self.namespace, *words),
            environment=os.environ | {"KUBECONFIG": str(self.kubeconfig), "PYTHONUNBUFFERED": "1"},
        )

    async def refused(self, *words: str) -> str:
        """The one line of a command that fails."""
        ended = await self(*words)
        assert ended.code == 1, ended
        assert ended.err.startswith("error: "), ended.err
        assert ended.err.count("\n") == 1, ended.err
        return ended.err
