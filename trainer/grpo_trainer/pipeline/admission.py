"""How many prompts may start, so that no completion is wasted.

The rule is AReaL's staleness gate (https://arxiv.org/abs/2505.24298), applied to
each producer's own weights, and bounded by the capacity of the buffer.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the groups in flight."""

    groups_per_step: int
    """Groups of a full batch."""
    capacity: int
    """Groups that may be in flight while no take is pending; 0 is a rendezvous."""
    max_staleness: int
    """Weight versions between sampling and training; 0 is on-policy."""
    max_steps: int | None
    """Index at which the run ends; None trains on all of the data."""

    def __post_init__(self) -> None:
        assert self.groups_per_step > 0 and self.capacity >= 0 and self.max_staleness >= 0


def startable(
    limits: Limits,
    *,
    version: int,
    next_step: int,
    wanted: int,
    in_flight: int,
    take_pending: bool,
) -> int:
    """Prompts that a producer may start now.

    Step s trains the weights of version s, and in-flight groups fill the steps from the next one
    on. So a group started behind k others is used at step `next_step + k // groups_per_step`.

    Args:
        version: weights of the producer. Newer than the next step means that training was rolled
            back behind them: they are of a policy that no longer exists.
        next_step: index of the next batch.
        wanted: groups the next step can still use, 1 <= wanted <= groups_per_step.
        in_flight: groups that are running or buffered.
        take_pending: the trainer waits for the next step's groups.
    """
    if version > next_step:
        return 0
    steps = limits.max_staleness + 1 + version - next_step
    if limits.max_steps is not None:
        steps = min(steps, limits.max_steps - next_step)
    if steps <= 0:
        return 0
    useful = wanted + (steps - 1) * limits.groups_per_step
    room = limits.capacity + (limits.groups_per_step if take_pending else 0)
    return max(0, min(useful, room) - in_flight)


def fair_share(available: int, waiting: int) -> int:
    """The share of one of `waiting` producers, so that all of them generate."""
    return -(-available // waiting)
