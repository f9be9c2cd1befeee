"""Runs the commands for containers on this machine, with the same scripts and tools."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from grpo_kubectl.errors import CommandError


async def local(command: Sequence[str]) -> AsyncGenerator[bytes, None]:
    """What a command prints, in small chunks; raises CommandError if it fails."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        while chunk := await process.stdout.read(1000):
            yield chunk
        said = await process.stderr.read()
        if await process.wait():
            raise CommandError(said.decode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
