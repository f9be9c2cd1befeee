"""A buffer of stand-in groups, small and fast to write about."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_trainer.pipeline import Batch, Lease, Limits, PromptSource, RolloutBuffer


@dataclass(frozen=True)
class Group:
    """What a buffer needs to know of a scored group."""

    version: int


Buffer = RolloutBuffer[Group]


def make_buffer(*, count: int = 100, episodes: int = 1, **options: Any) -> Buffer:
    """Two groups per step, room for many, one version of staleness, no end but the data's."""
    usual = {"groups_per_step": 2, "capacity": 100, "max_staleness": 1, "max_steps": None}
    limits = Limits(**{key: options.pop(key, value) for key, value in usual.items()})
    options = {"max_attempts": 3, "lease_seconds": 60.0, **options}
    return RolloutBuffer(PromptSource(count, episodes, seed=0), limits, **options)


def source_at(
    state: Mapping[str, Any], *, count: int, episodes: int = 1, seed: int = 0
) -> PromptSource:
    """A source at the position of a state."""
    source = PromptSource(count, episodes, seed)
    source.load_state_dict(state)
    return source


def serials(leases: tuple[Lease, ...]) -> list[int]:
    return [lease.prompt.serial for lease in leases]


def complete_all(buffer: Buffer, leases: tuple[Lease, ...], version: int) -> None:
    for lease in leases:
        assert buffer.complete(lease, Group(version), keep=True)


async def filter_next(buffer: Buffer, number: int) -> None:
    """The next prompts come back without signal."""
    for _ in range(number):
        (lease,) = await buffer.lease("p", 1)
        buffer.complete(lease, Group(0), keep=False)


async def trained_step(buffer: Buffer, producer: str = "p") -> Batch[Group]:
    """One synchronous step: load the step's weights, generate, take, commit."""
    buffer.loaded(producer, buffer.next_step)
    complete_all(buffer, await buffer.lease(producer, 2), buffer.next_step)
    batch = await buffer.take()
    assert batch is not None
    buffer.commit(batch)
    return batch
