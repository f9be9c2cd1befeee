"""Prompts that producers hold, each with a deadline."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from .source import ScheduledPrompt


@dataclass(frozen=True, slots=True)
class Lease:
    """A prompt that one producer holds until it completes, fails or its deadline passes."""

    prompt: ScheduledPrompt
    id: str
    """Unique within the process."""
    producer: str


class LeaseBook:
    """The leases that have not ended. A lease ends once, and then its prompt has a next state."""

    def __init__(self, seconds: float, on_expiry: Callable[[Lease], None]) -> None:
        """`on_expiry` is called with a lease that has not ended `seconds` after it was opened."""
        self._seconds = seconds
        self._on_expiry = on_expiry
        self._numbers = itertools.count()
        self._out: dict[str, tuple[Lease, asyncio.TimerHandle]] = {}
        self._unanswered: defaultdict[str, set[str]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._out)

    def open(self, prompt: ScheduledPrompt, producer: str) -> Lease:
        """Lease a prompt to a producer."""
        lease = Lease(prompt, f"{prompt.serial}.{next(self._numbers)}", producer)
        timer = asyncio.get_running_loop().call_later(self._seconds, self._on_expiry, lease)
        self._out[lease.id] = (lease, timer)
        self._unanswered[producer].add(lease.id)
        return lease

    def end(self, lease: Lease) -> bool:
        """End a lease; False if it had ended before."""
        if lease.id not in self._out:
            return False
        _, timer = self._out.pop(lease.id)
        timer.cancel()
        self.answer(lease)
        return True

    def answer(self, lease: Lease) -> None:
        """Record that the producer is done with it."""
        self._unanswered[lease.producer].discard(lease.id)

    def unanswered(self, producer: str) -> int:
        """Leases that the producer is not done with."""
        return len(self._unanswered[producer])

    def held_by(self, producer: str) -> tuple[Lease, ...]:
        """The producer's leases, oldest first."""
        return tuple(lease for lease, _ in self._out.values() if lease.producer == producer)

    def end_all(self) -> None:
        """End every lease."""
        for _, timer in self._out.values():
            timer.cancel()
        self._out.clear()
        self._unanswered.clear()
