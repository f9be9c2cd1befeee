"""The bounded buffer of scored groups between producers and the trainer.

    lease -> running --complete(keep)--> buffered --take--> uncommitted --commit--> trained
      ^         |  |                        |                    |
      |         |  +--complete(not keep)--> filtered, finished with the step that it led up to
      |         |                           |                    |
      +---------+---------------------------+--------------------+
        failed, given back, past its deadline | too stale        | reset

Who waits for whom: `lease` for room (a take, a batch handed out, newer weights, a prompt given
back), `take` for completions. All runs in one event loop; a method without `await` is atomic.
"""

import asyncio
import heapq
import logging
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Generic

from grpo_trainer.events import GroupCounts

from .admission import Limits, fair_share, startable
from .batch import Batch, BufferedGroup, GroupT
from .leases import Lease, LeaseBook
from .source import PromptOutcome, PromptSource, SourceState, Ticket

logger = logging.getLogger(__name__)


class RolloutBuffer(Generic[GroupT]):
    """Leases prompts to producers, collects their groups, and hands them out step by step.

    A prompt that was offered ends exactly once: trained, filtered or dropped. No group is handed
    out more than `max_staleness` versions after it was sampled.
    """

    def __init__(
        self,
        source: PromptSource,
        *,
        groups_per_step: int,
        capacity: int,
        max_staleness: int,
        max_steps: int | None,
        max_attempts: int,
        lease_seconds: float,
        first_step: int = 0,
        max_lease_attempts: int = 5,
    ) -> None:
        """
        Args:
            groups_per_step: groups of a full batch.
            capacity: groups that may be in flight while no take is pending.
            max_staleness: versions between sampling and training.
            max_steps: index at which the run ends; None trains on all of the source.
            max_attempts: a step generates at most this many times its groups. It is then smaller;
                if none was kept, another round begins.
            lease_seconds: deadline of a lease.
            first_step: index of the first batch.
            max_lease_attempts: failed leases after which a prompt is dropped.
        """
        assert groups_per_step > 0 and capacity >= 0 and max_staleness >= 0
        assert max_attempts > 0 and max_lease_attempts > 0 and lease_seconds > 0
        self._source = source
        self._limits = Limits(groups_per_step, capacity, max_staleness, max_steps)
        self._attempts_per_step = max_attempts * groups_per_step
        self._max_lease_attempts = max_lease_attempts

        self._versions: dict[str, int] = {}
        self._leases = LeaseBook(lease_seconds, self._expire)
        self._buffered: list[BufferedGroup[GroupT]] = []
        self._filtered: list[int] = []
        self._uncommitted: dict[int, Batch[GroupT]] = {}
        self._attempts_left = self._attempts_per_step
        self._next_step = first_step
        self._episode = source.episode

        self._changed = asyncio.Event()
        self._leasing = 0
        self._taking = False
        self._closed = False
        self._error: BaseException | None = None

    @property
    def capacity(self) -> int:
        """Groups that may be in flight while no take is pending."""
        return self._limits.capacity

    @property
    def depth(self) -> int:
        """Complete groups that were not handed out yet."""
        return len(self._buffered)

    @property
    def running(self) -> int:
        """Leases that are out."""
        return len(self._leases)

    @property
    def next_step(self) -> int:
        """Index of the next batch to be handed out."""
        return self._next_step

    @property
    def episode(self) -> int:
        """Episode of the newest batch."""
        return self._episode

    @property
    def counts(self) -> GroupCounts:
        """Prompts by fate; a filtered one counts at once, though its step is still to come."""
        done = self._source.counts
        filtered = len(self._filtered) + sum(len(b.filtered) for b in self._uncommitted.values())
        return GroupCounts(done.trained, done.filtered + filtered, done.dropped, done.requeued)

    def state_dict(self) -> SourceState:
        """Position in the data after the last commit; everything later is replayed from it."""
        return self._source.state_dict()

    def loaded(self, producer: str, version: int) -> None:
        """The producer samples with these weights from now on; it gets no lease before."""
        self._versions[producer] = version
        self._settle()

    async def lease(self, producer: str, limit: int) -> tuple[Lease, ...]:
        """Wait until at least one prompt may start, and take up to `limit` of those that may.

        Returns () once the buffer is closed, or everything was handed out and committed. Several
        producers that wait share what may start, first come first served.

        Raises:
            BaseException: what `abort` was called with.
        """
        assert limit > 0
        self._leasing += 1
        try:
            while not self._stopped() and not self._over():
                share = fair_share(self._startable(producer), self._leasing)
                if share > 0 and not self._source.exhausted:
                    return self._start(producer, min(limit, share))
                await self._changed.wait()
            return ()
        finally:
            self._leasing -= 1

    def complete(self, lease: Lease, group: GroupT, *, keep: bool) -> bool:
        """Deliver a lease's group; `keep` is False for one without signal, which is replaced.

        Returns False, and ignores it, if the lease is no longer valid: it failed, was released,
        went past its deadline, or is from before a reset.
        """
        if not self._leases.end(lease):
            return False
        if keep:
            ticket = lease.ticket
            entry = BufferedGroup(group.version, ticket.serial, ticket, group)
            heapq.heappush(self._buffered, entry)
            self._requeue_stale()
        else:
            self._filter(lease.ticket)
        self._settle()
        return True

    def fail(self, lease: Lease) -> None:
        """The prompt goes back, if the lease is still valid."""
        if self._leases.end(lease):
            self._retry(lease.ticket)
            self._settle()

    def give_back(self, leases: Iterable[Lease]) -> None:
        """The prompts go back, where the lease is still valid; it does not count as failed."""
        for lease in leases:
            if self._leases.end(lease):
                self._source.give_back(lease.ticket)
        self._settle()

    def release(self, producer: str) -> None:
        """The producer is dead: all its prompts go back; it gets no lease until it has `loaded`."""
        self._versions.pop(producer, None)
        for lease in self._leases.held_by(producer):
            self.fail(lease)

    async def take(self) -> Batch[GroupT] | None:
        """Wait for the next step's batch; it may be asked for while the previous one is trained.

        A batch is full unless the data ended or the step's attempts are used up. Groups that would
        go stale first are handed out first. Returns None when the data or the steps are used up,
        or the buffer is closed.

        Raises:
            BaseException: what `abort` was called with.
        """
        assert not self._taking, "one take at a time"
        self._taking = True
        self._settle()
        try:
            while not self._stopped() and not self._all_handed_out():
                if self._ready():
                    return self._hand_out()
                await self._changed.wait()
            return None
        finally:
            self._taking = False

    def commit(self, batch: Batch[GroupT]) -> None:
        """The batch was trained: its prompts, and those filtered on the way to it, are finished."""
        known = self._uncommitted.pop(batch.step, None)
        assert known is batch, f"batch {batch.step} is committed already or from before a reset"
        self._finish(batch.serials, PromptOutcome.TRAINED)
        self._finish(batch.filtered, PromptOutcome.FILTERED)
        self._settle()

    def reset(self, state: Mapping[str, Any], step: int) -> None:
        """Roll back to a checkpoint: its data position, and the index of the step that follows it.

        Everything in flight is forgotten: leases and batches from before are void. So are the
        producers' versions, as the same number may now mean other weights: each reports what it
        has `loaded` again. Producers that were told the end must lease again.

        Raises:
            InvalidInputError: the state is of other data.
        """
        self._source.load_state_dict(state)
        self._forget_in_flight()
        self._uncommitted.clear()
        self._versions.clear()
        self._next_step = step
        self._episode = self._source.episode
        self._settle()

    def close(self) -> None:
        """End the run: `lease` returns (), `take` None; what was handed out may be committed."""
        self._closed = True
        self._forget_in_flight()
        self._settle()

    def abort(self, error: BaseException) -> None:
        """Fail the run: every `lease` and `take` raises the error."""
        self._error = error
        self._settle()

    def _stopped(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._closed

    def _over(self) -> bool:
        return not self._uncommitted and self._all_handed_out()

    def _all_handed_out(self) -> bool:
        max_steps = self._limits.max_steps
        if max_steps is not None and self._next_step >= max_steps:
            return True
        return not self._buffered and self._no_more_completions()

    def _no_more_completions(self) -> bool:
        return not self._leases and self._source.exhausted

    def _ready(self) -> bool:
        enough = len(self._buffered) >= self._wanted()
        return enough or (bool(self._buffered) and self._no_more_completions())

    def _wanted(self) -> int:
        """Groups the next batch can use: fewer when its attempts run out, one at the least."""
        return min(self._limits.groups_per_step, max(1, self._attempts_left))

    def _startable(self, producer: str) -> int:
        if producer not in self._versions:
            return 0
        return startable(
            self._limits,
            version=self._versions[producer],
            next_step=self._next_step,
            wanted=self._wanted(),
            in_flight=len(self._leases) + len(self._buffered),
            take_pending=self._taking,
        )

    def _settle(self) -> None:
        """After every change: all who wait look again, in the order in which they came."""
        if self._over():
            self._finish(self._filtered, PromptOutcome.FILTERED)
            self._filtered = []
        self._changed.set()
        self._changed.clear()

    def _start(self, producer: str, count: int) -> tuple[Lease, ...]:
        leases: list[Lease] = []
        while len(leases) < count and (ticket := self._source.take()) is not None:
            leases.append(self._leases.open(ticket, producer))
        return tuple(leases)

    def _expire(self, lease: Lease) -> None:
        logger.warning("row %d: no completion from %s in time", lease.ticket.row, lease.producer)
        self.fail(lease)

    def _retry(self, ticket: Ticket) -> None:
        ticket = ticket.retried()
        if ticket.attempt < self._max_lease_attempts:
            self._source.give_back(ticket)
        else:
            logger.warning("row %d: dropped after %d attempts", ticket.row, ticket.attempt)
            self._source.finish(ticket.serial, PromptOutcome.DROPPED)

    def _requeue_stale(self) -> None:
        # Not a failure: dropping what others overtook would drop the prompts with long answers.
        oldest_usable = self._next_step - self._limits.max_staleness
        while self._buffered and self._buffered[0].version < oldest_usable:
            self._source.give_back(heapq.heappop(self._buffered).ticket)

    def _filter(self, ticket: Ticket) -> None:
        # Finished only with its step: a resumed run then repeats the step with all its attempts.
        self._filtered.append(ticket.serial)
        self._attempts_left -= 1
        if self._attempts_left <= 0 and not self._buffered:
            logger.warning("step %d: no group kept in %d", self._next_step, len(self._filtered))
            self._attempts_left = self._attempts_per_step

    def _hand_out(self) -> Batch[GroupT]:
        size = min(self._limits.groups_per_step, len(self._buffered))
        chosen = [heapq.heappop(self._buffered) for _ in range(size)]
        chosen.sort(key=attrgetter("serial"))
        batch = Batch(
            step=self._next_step,
            episode=chosen[-1].ticket.episode,
            serials=tuple(entry.serial for entry in chosen),
            groups=tuple(entry.group for entry in chosen),
            filtered=tuple(self._filtered),
        )
        self._uncommitted[batch.step] = batch
        self._episode = batch.episode
        self._next_step += 1
        self._filtered = []
        self._attempts_left = self._attempts_per_step
        self._requeue_stale()
        self._settle()
        return batch

    def _finish(self, serials: Iterable[int], fate: PromptOutcome) -> None:
        for serial in serials:
            self._source.finish(serial, fate)

    def _forget_in_flight(self) -> None:
        self._leases.end_all()
        self._buffered.clear()
        self._filtered = []
        self._attempts_left = self._attempts_per_step
