"""Copy a checkpoint from a volume: a tar stream, checked file by file, written completely or not
at all."""

import asyncio
import os
import shutil
import tarfile
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from .checkpoints import StoredCheckpoint
from .errors import CommandError
from .shell import Shell, text_of

SIZES_SCRIPT = r"""
cd "$1" && find . -type f -exec stat -c '%s %n' {} +
"""
"""Size and name of each file."""
MARKER = "COMPLETE"


async def copy(shell: Shell, source: str, checkpoint: StoredCheckpoint, target: Path) -> int:
    """Copy the checkpoint in the directory `source` to `target`; returns its size in bytes.

    It is written beside the target and renamed once every file is complete. Raises CommandError,
    and then leaves nothing behind.
    """
    refuse_existing(target)
    inside = f"{source}/{checkpoint.name}"
    expected = parse_sizes(await text_of(shell(("sh", "-c", SIZES_SCRIPT, "sh", inside))))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise CommandError(f"{target}: {error.strerror}") from error
    try:
        await _extract(shell(("tar", "-C", inside, "-cf", "-", ".")), partial)
        await asyncio.to_thread(_verify, partial, expected, checkpoint)
        partial.chmod(0o755)
        refuse_existing(target)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return sum(expected.values())


def refuse_existing(target: Path) -> None:
    """Raises CommandError when the target exists."""
    if target.exists() or target.is_symlink():
        raise CommandError(f"{target} already exists; nothing is overwritten: name a new directory")


def parse_sizes(listing: str) -> dict[str, int]:
    """The lines of SIZES_SCRIPT: paths within the checkpoint and their sizes in bytes."""
    pairs = (line.split(" ", 1) for line in listing.splitlines())
    return {name.removeprefix("./"): int(size) for size, name in pairs}


async def _extract(chunks: AsyncGenerator[bytes, None], directory: Path) -> None:
    """Unpack a tar stream; its paths may not leave the directory."""
    reading, writing = os.pipe()
    unpacking = asyncio.create_task(asyncio.to_thread(_unpack, reading, directory))
    try:
        with open(writing, "wb", buffering=0) as sink:
            async with aclosing(chunks):
                async for chunk in chunks:
                    await asyncio.to_thread(_write_all, sink.fileno(), chunk)
    except BrokenPipeError:
        pass  # unpacking failed; its exception is raised below
    except BaseException:
        await asyncio.wait({unpacking})
        unpacking.exception()  # only a stream that ended early
        raise
    await unpacking


def _write_all(descriptor: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(descriptor, view) :]


def _unpack(reading: int, directory: Path) -> None:
    try:
        with open(reading, "rb") as source, tarfile.open(fileobj=source, mode="r|") as archive:
            archive.extractall(directory, filter="data")
            source.read()  # the padding at the end, or the sender fails
    except (tarfile.TarError, OSError) as error:
        raise CommandError(f"{directory.parent}: the copy failed: {error}") from error


def _verify(directory: Path, expected: dict[str, int], checkpoint: StoredCheckpoint) -> None:
    """Raises CommandError unless the files are those on the volume."""
    found = {
        str(path.relative_to(directory)): path.stat().st_size
        for path in directory.rglob("*")
        if path.is_file()
    }
    if found != expected:
        wrong = sorted(
            name for name in expected.keys() | found if expected.get(name) != found.get(name)
        )
        raise CommandError(
            f"{checkpoint.name} changed or was truncated during the copy: "
            f"{', '.join(wrong[:3])}; retry, or choose another --step"
        )
    if MARKER not in expected or (directory / MARKER).read_text().strip() != str(checkpoint.step):
        raise CommandError(f"{checkpoint.name} is no longer complete; choose another --step")
