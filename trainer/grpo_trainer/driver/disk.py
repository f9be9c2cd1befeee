"""The forecast of checkpoint sizes, compared with the free disk before a run starts."""

import shutil
from pathlib import Path
from typing import Protocol

from grpo_trainer.errors import RunFailedError
from grpo_trainer.planning.forecast import training_layout
from grpo_trainer.planning.volume import stored_bytes
from grpo_trainer.spec import GRPOJobSpec


class RunSize(Protocol):
    """The sizes of a prepared run that decide how much it writes."""

    @property
    def parameters(self) -> int | None: ...

    @property
    def total_steps(self) -> int: ...


def checkpoint_bytes(spec: GRPOJobSpec, parameters: int) -> int:
    """Bytes of one checkpoint of a model of any architecture.

    Without ZeRO and FSDP every data-parallel rank writes an optimizer state of its own.
    """
    layout = training_layout(spec)
    optimized = parameters * layout.data_parallel // layout.shards
    return stored_bytes(parameters, optimized, layout.weight_bytes, sharded=layout.sharded)


def most_checkpoints(spec: GRPOJobSpec, total_steps: int) -> int:
    """Checkpoints that exist at once: an old one is deleted after the new one is complete."""
    interval = spec.checkpoint.interval
    written = 1 if interval == 0 else max(1, -(-total_steps // interval))
    return min(written, spec.checkpoint.keep_last + 1)


def check_space(spec: GRPOJobSpec, run: RunSize, directory: Path, existing: int) -> str:
    """Compare the free disk with what the checkpoints of a run will need; returns both as text.

    Args:
        directory: where checkpoints are written.
        existing: complete checkpoints that are there, and will be replaced.

    Raises:
        RunFailedError: they would not fit.
    """
    if run.parameters is None:
        return "the size of the model is unknown"
    size = checkpoint_bytes(spec, run.parameters)
    count = max(1, most_checkpoints(spec, run.total_steps) - existing)
    usage = shutil.disk_usage(directory)
    # Some network file systems do not report their size.
    if usage.total == 0:
        return "the size of the file system is unknown"
    needed = (
        f"{_readable(usage.free)} are free and {count} checkpoints of {_readable(size)} are needed"
    )
    if count * size <= usage.free:
        return needed
    raise RunFailedError(
        f"{directory}: {needed}; free space, lower checkpoint.keepLast (at least 1 is kept "
        "beside the one being written), or choose another --run-dir"
    )


def _readable(size: int) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size} {unit}"
        size //= 1000
    return f"{size} TB"
