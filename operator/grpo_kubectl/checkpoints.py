"""Checkpoints on a job's volume."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from grpo_operator.model.naming import child_name
from grpo_operator.model.observed import Job

from . import text
from .errors import CommandError
from .shell import Shell, text_of

VOLUME = "/data"
"""Where the operator mounts the job's volume."""

LIST_SCRIPT = r"""
cd "$1" || exit 1
for entry in step-*; do
    [ -d "$entry" ] || continue
    kib=$(du -sk "$entry") && changed=$(stat -c %Y "$entry") || continue
    printf '%s\t%s\t%s\t%s\n' "$entry" "${kib%%[!0-9]*}" "$changed" "$(cat "$entry/COMPLETE" 2>&-)"
done
"""
"""A line for each checkpoint: name, KiB, time of its last change, content of its marker. POSIX, so
that it runs in any image; a checkpoint that is deleted meanwhile is left out."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A directory step-N."""

    step: int
    kib: int
    changed: datetime
    complete: bool
    """Whether it has its marker; without, it is partly written or partly deleted."""

    @property
    def name(self) -> str:
        return f"step-{self.step}"


def directory(job: Job) -> str:
    """The directory of a job's checkpoints, in its pods and in the reader pod."""
    return f"{VOLUME}/runs/{child_name(job.name, job.uid)}/checkpoints"


async def stored(shell: Shell, path: str) -> tuple[StoredCheckpoint, ...]:
    """The checkpoints in a directory, sorted by step."""
    return parse(await text_of(shell(("sh", "-c", LIST_SCRIPT, "sh", path))))


def parse(listing: str) -> tuple[StoredCheckpoint, ...]:
    """The lines of LIST_SCRIPT."""
    found = []
    for line in listing.splitlines():
        name, kib, changed, marker = line.split("\t")
        step = name.removeprefix("step-")
        if step.isdecimal():
            time = datetime.fromtimestamp(int(changed), UTC)
            found.append(StoredCheckpoint(int(step), int(kib), time, marker.strip() == step))
    return tuple(sorted(found, key=lambda checkpoint: checkpoint.step))


def chosen(found: Sequence[StoredCheckpoint], step: int | None) -> StoredCheckpoint:
    """The checkpoint of a step, or the newest. Raises CommandError unless it is complete."""
    complete = [checkpoint for checkpoint in found if checkpoint.complete]
    steps = ", ".join(str(checkpoint.step) for checkpoint in complete)
    if not complete:
        raise CommandError("the volume has no complete checkpoint")
    if step is None:
        return complete[-1]
    for checkpoint in found:
        if checkpoint.step == step and checkpoint.complete:
            return checkpoint
        if checkpoint.step == step:
            raise CommandError(
                f"--step: Invalid value: {step}: the checkpoint is incomplete; complete: {steps}"
            )
    raise CommandError(f"--step: Invalid value: {step}: no such checkpoint; complete: {steps}")


def render(found: Sequence[StoredCheckpoint], now: datetime) -> list[str]:
    """The table."""
    rows = [
        [
            str(checkpoint.step),
            text.size(checkpoint.kib * 1024),
            "yes" if checkpoint.complete else "no",
            text.age((now - checkpoint.changed).total_seconds()),
        ]
        for checkpoint in found
    ]
    return text.table(("STEP", "SIZE", "COMPLETE", "AGE"), rows)
